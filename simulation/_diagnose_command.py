"""The command ``diagnose``: its options, and q and k from files to a table or JSON.

In: the words after ``diagnose``. Out: printed heads; a ValueError with one clear sentence for bad input.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath
from typing import Any

Progress = Callable[[int, int], None]


def add_diagnose(
    commands: Any,
    whole: Callable[[str], Any],
    real: Callable[[str], Any],
    progress: Callable[[str], Progress | None],
) -> None:
    """Add the command to those of the parser; `whole` and `real` read numbers, `progress` shows a line."""
    parser = commands.add_parser("diagnose", help="which assumption fails in queries and keys of a real model, by head")
    parser.add_argument("files", nargs="*", metavar="FILE", help="one file with q and k, or one for each")
    parser.add_argument(
        "--example", action="store_true", help="the heads of all-MiniLM-L6-v2 that come with the package"
    )
    _add_reading_options(parser, whole)
    parser.add_argument(
        "--scale", type=real, metavar="C", help="the model's factor on q·k (default: the file's, or 1/sqrt(d_k))"
    )
    parser.add_argument("--causal", action="store_true", help="a query sees only keys up to its own place")
    parser.add_argument(
        "--blocks", type=whole, default=16, metavar="N", help="of tokens, for standard errors (default 16)"
    )
    parser.add_argument("--confidence", type=real, default=0.95, metavar="P", help="of the intervals")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=lambda options: _diagnose(options, progress))


def _add_reading_options(parser: argparse.ArgumentParser, whole: Callable[[str], Any]) -> None:
    parser.add_argument("--q", metavar="NAME", help="the array of queries, or the fused one")
    parser.add_argument("--k", metavar="NAME", help="the array of keys")
    parser.add_argument("--axis", type=whole, metavar="N", help="the axis of d_k (default: the last)")
    parser.add_argument("--token-axis", type=whole, metavar="N", help="the axis of tokens (default: the one before)")
    parser.add_argument("--heads", type=whole, metavar="H", help="heads that lie side by side in the axis of d_k")
    parser.add_argument(
        "--layout", metavar="NAME", help="q and k are fused in one array: blocks or interleaved by head"
    )
    parser.add_argument(
        "--parts", type=whole, default=3, metavar="N", help="3 if it holds q, k, v (default), 2 if q, k"
    )
    parser.add_argument(
        "--header", default="auto", metavar="WHICH", help="first line of a table has names: auto, yes, no"
    )
    parser.add_argument(
        "--index-column", default="auto", metavar="WHICH", help="column of row numbers: auto, keep, drop"
    )
    parser.add_argument("--drop-non-finite", action="store_true", help="leave out tokens with NaN or infinity")
    parser.add_argument(
        "--max-mb", type=whole, default=4096, metavar="N", help="most that q and k take (default 4,096)"
    )


def _diagnose(options: argparse.Namespace, progress: Callable[[str], Progress | None]) -> int:
    from simulation.measured import diagnose

    data = _example(options) if options.example else _read(options)
    result = diagnose(
        data.q,
        data.k,
        scale=data.scale if options.scale is None else options.scale,
        blocks=options.blocks,
        confidence=options.confidence,
        progress=progress("heads"),
        **data.arguments(causal=options.causal),
    )
    result = replace(result, notes=(*data.doubts, *data.notes, *result.notes))
    print(result.to_json() if options.json else result)
    return 0


def _example(options: argparse.Namespace) -> Any:
    from simulation.example_data import load_example
    from simulation.qk_arrays import QueriesKeys

    if options.files:
        raise ValueError(f"`--example` must stand without files; received {options.files[0]!r}.")
    example = load_example()
    return QueriesKeys.of(example["q"], example["k"], scale=32**-0.5, notes=(example["source"],))


def _read(options: argparse.Namespace) -> Any:
    from simulation._validation import whole_number
    from simulation.qk_files import Choices, read_qk

    if not options.files:
        raise ValueError("`FILE` must name one file with q and k, or one for each; --example needs none.")
    said = ("q", "k", "axis", "token_axis", "heads", "layout", "parts", "header", "index_column", "drop_non_finite")
    choices = Choices(**{name: getattr(options, name) for name in said})
    limit = 10**6 * whole_number("max_mb", options.max_mb, 1, 10**9)
    names = [PurePath(file).name or file for file in options.files]  # messages cut what is long
    data = read_qk(*options.files, names=names, choices=choices, max_bytes=limit)
    if data.non_finite:
        raise ValueError(f"{data.non_finite} --drop-non-finite leaves out their tokens.")
    return data
