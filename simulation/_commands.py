"""Options of the command line for long runs: precision, a Dask cluster, a checkpoint."""

import argparse
import importlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

_CONNECT = "10s"


def add_precision_option(parser: argparse.ArgumentParser, real: Callable[[str], Any], of: str) -> None:
    """Add --precision: a relative standard error in place of a number of samples."""
    parser.add_argument(
        "--precision", type=real, metavar="X", help=f"relative standard error wanted of {of}; takes what it takes"
    )


def add_checkpoint_option(parser: argparse.ArgumentParser) -> None:
    """Add --checkpoint: a file from which a run that was stopped goes on."""
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="keep the state here, and go on from it; refuses another question"
    )


def add_dask_option(parser: argparse.ArgumentParser) -> None:
    """Add --dask: a cluster to run on, which does not change the result."""
    parser.add_argument("--dask", metavar="ADDRESS", help="run on the Dask cluster at ADDRESS, such as tcp://host:8786")


@contextmanager
def executor_at(address: str | None) -> Iterator[Executor | None]:
    """Give the executor of the Dask cluster at `address`, or None for threads.

    Raises
    ------
    ValueError
        If the package `distributed` is missing or the cluster does not answer.
    """
    if address is None:
        yield None
        return
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise ValueError("`--dask` needs the package distributed: pip install '.[cluster]'.") from None
    try:
        client = distributed.Client(address, timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"`--dask` found no cluster at {address}: {reason}") from None
    with client:
        yield client.get_executor(pure=False)
