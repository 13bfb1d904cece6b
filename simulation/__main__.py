"""``python -m simulation``: the experiments on the command line.

Exit codes: 0 all well (validate: every claim confirmed), 1 a claim refuted, 2 bad input, 3 a claim
inconclusive and none refuted, 130 interrupted.
"""

import argparse
import io
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from simulation._commands import add_checkpoint_option, add_dask_option, add_precision_option, executor_at
from simulation._diagnose_command import add_diagnose
from simulation.comparison import compare_scorings
from simulation.decay import DECAY_LADDER, gradient_decay
from simulation.experiments import dot_products
from simulation.methods import METHODS
from simulation.model import ENTRIES, QueryKeyModel
from simulation.parallel import Progress
from simulation.results import __version__
from simulation.row_sizes import QUANTITIES
from simulation.row_statistics import ROW_STATISTICS
from simulation.scored_rows import ROW_QUANTITIES
from simulation.softmax import jacobian_sizes, softmax, softmax_jacobian
from simulation.statistics import samples_for_precision
from simulation.sweeps import DEFAULT_LADDER, SWEEP_TOLERANCE, sweep
from simulation.typed_logits import logits_from_text
from simulation.verdicts import DEFAULT_TOLERANCE

MAX_LOGITS = 1024
_TYPED = {
    "n_keys": "keys",
    "n_rows": "rows",
    "n_samples": "samples",
    "quantities": "quantity",
    "rng": "seed",
    "statistics": "statistic",
}
_PLACES = ("files", "logits")  # not options, but what stands without a name
EXIT_CODES = {"confirmed": 0, "refuted": 1, "inconclusive": 3}


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one clear line, not a page of usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a pipe that cannot carry √ gets its escape, not a lost run
        sys.stdout.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(_with_numbers_apart(words))
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except ValueError as error:
        print(f"python -m simulation {options.command}: error: {_as_typed(str(error), options)}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _as_typed(message: str, options: argparse.Namespace) -> str:
    """Return an error's message with the names of options in place of those of arguments in Python.

    Examples
    --------
    >>> _as_typed("`n_samples` must be at least 2", argparse.Namespace(samples=1))
    '`--samples` must be at least 2'
    """

    def option(match: re.Match[str]) -> str:
        name = _TYPED.get(match[1], match[1])
        words = name.replace("_", "-")
        return f"`--{words}`" if hasattr(options, name) and name not in _PLACES else match[0]

    return re.sub(r"`(\w+)`", option, message)


def _with_numbers_apart(words: list[str]) -> list[str]:
    """Move options of `softmax` to the front, so that -3, -1e5 and "-3, 1" are read as logits."""
    if words[:1] != ["softmax"] or "--" in words:
        return words
    flags = [word for word in words[1:] if word in ("--json", "-h", "--help")]
    return ["softmax", *flags, "--", *(word for word in words[1:] if word not in flags)]


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m simulation", description="Why attention divides by sqrt(d_k), measured.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    validate = commands.add_parser("validate", help="hold the footnote's four claims against real draws of q and k")
    validate.add_argument("--d-k", type=_whole, default=64, metavar="N", help="head dimension (default 64)")
    validate.add_argument("--scale", type=_real, metavar="C", help="factor on q·k (default 1/sqrt(d_k))")
    _add_run_options(validate, samples=1_000_000, tolerance=DEFAULT_TOLERANCE)
    validate.set_defaults(run=_validate)

    ladder = commands.add_parser("sweep", help="the same over a ladder of d_k")
    ladder.add_argument(
        "--d-k", type=_whole, nargs="+", default=list(DEFAULT_LADDER), metavar="N", help="head dimensions"
    )
    _add_run_options(ladder, samples=100_000, tolerance=SWEEP_TOLERANCE)
    ladder.set_defaults(run=_sweep)

    decay = commands.add_parser("decay", help="how softmax gradients decay as d_k grows, raw and scaled")
    decay.add_argument("--d-k", type=_whole, nargs="+", default=list(DECAY_LADDER), metavar="N", help="head dimensions")
    decay.add_argument("--keys", type=_whole, default=128, metavar="N", help="keys in a row (default 128)")
    decay.add_argument("--rows", type=_whole, default=4096, metavar="N", help="rows for each d_k (default 4,096)")
    add_precision_option(decay, _real, "the mean trace")
    decay.add_argument("--quantity", nargs="+", default=None, metavar="NAME", help=f"any of {', '.join(QUANTITIES)}")
    decay.add_argument("--statistic", nargs="+", default=None, metavar="NAME", help=", ".join(ROW_STATISTICS))
    decay.add_argument("--sampler", default="auto", metavar="NAME", help="auto, plain or conditional")
    _add_model_options(decay, correlation=False)
    _add_common_options(decay)
    add_dask_option(decay)
    decay.set_defaults(run=_decay)

    _add_scorings(commands.add_parser("scorings", help="other ways than 1/sqrt(d_k), side by side on the same draws"))

    add_diagnose(commands, _whole, _real, _progress)

    by_hand = commands.add_parser("softmax", help="weights, Jacobian and its sizes of logits such as 3 1 -3")
    by_hand.add_argument("logits", nargs="*", metavar="LOGIT")
    by_hand.add_argument("--json", action="store_true", help="print JSON")
    by_hand.set_defaults(run=_softmax)
    return parser


def _add_scorings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scoring", nargs="+", default=list(METHODS), metavar="NAME", help=f"any of {', '.join(METHODS)}"
    )
    parser.add_argument("--d-k", type=_whole, nargs="+", default=[64], metavar="N", help="head dimensions (default 64)")
    parser.add_argument(
        "--keys", type=_whole, nargs="+", default=[128], metavar="N", help="keys in a row (default 128)"
    )
    parser.add_argument(
        "--correlation", type=_real, nargs="+", default=[0.0, 0.5], metavar="R", help="of aligned keys (default 0 0.5)"
    )
    parser.add_argument("--aligned", default="one", metavar="NAME", help="aligned keys of a row: one (default) or all")
    parser.add_argument("--rows", type=_whole, default=2048, metavar="N", help="rows for each size (default 2,048)")
    parser.add_argument("--quantity", nargs="+", metavar="NAME", help=f"any of {', '.join(ROW_QUANTITIES)}")
    _add_common_options(parser)
    parser.set_defaults(run=_scorings)


def _add_run_options(parser: argparse.ArgumentParser, *, samples: int, tolerance: float) -> None:
    parser.add_argument("--samples", type=_whole, metavar="N", help=f"pairs (default {samples:,})")
    add_precision_option(parser, _real, "the variance")
    add_checkpoint_option(parser)
    parser.add_argument("--tolerance", type=_real, default=tolerance, metavar="X", help=f"default {tolerance:g}")
    _add_model_options(parser)
    _add_common_options(parser)
    add_dask_option(parser)


def _add_model_options(parser: argparse.ArgumentParser, *, correlation: bool = True) -> None:
    parser.add_argument("--entries", default="normal", metavar="NAME", help=f"one of {', '.join(ENTRIES)}")
    parser.add_argument("--df", type=_real, metavar="X", help="degrees of freedom of student_t entries")
    defaults = {
        "q-mean": 0.0,
        "q-std": 1.0,
        "k-mean": 0.0,
        "k-std": 1.0,
        **({"correlation": 0.0} if correlation else {}),
    }
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=_real, default=default, metavar="X", help=f"default {default:g}")


def _add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=_whole, metavar="N", help="drawn and reported when not given")
    parser.add_argument("--confidence", type=_real, default=0.95, metavar="P", help="of the intervals")
    parser.add_argument("--workers", type=_whole, metavar="N", help="threads (default: one for each core)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _whole(text: str) -> Any:
    """Read a whole number; anything else goes on as it is, for the library to refuse by name."""
    try:
        return int(text)
    except ValueError:
        return _real(text)


def _real(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _print_json(record: dict[str, Any]) -> None:
    """Print a record as JSON, with escapes for what the output's encoding may not carry."""
    readable = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(record, indent=2, allow_nan=False, ensure_ascii=not readable))


def _departures(options: argparse.Namespace) -> dict[str, Any]:
    names = ("entries", "df", "q_mean", "q_std", "k_mean", "k_std", "correlation")
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


def _run_arguments(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "n_samples": options.samples,
        "precision": options.precision,
        "checkpoint": options.checkpoint,
        "rng": options.seed,
        "confidence": options.confidence,
        "tolerance": options.tolerance,
        "workers": options.workers,
        "progress": _progress(),
    }


def _progress(unit: str = "chunks") -> Progress | None:
    """Return a progress line for a terminal, and none for a pipe."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        end = "\r\033[K" if done == total else ""
        print(f"\r{done:,} of {total:,} {unit}{end}", end="", file=sys.stderr, flush=True)

    return show


def _validate(options: argparse.Namespace) -> int:
    model = QueryKeyModel(options.d_k, **_departures(options))
    with executor_at(options.dask) as executor:
        result = dot_products(model, scale=options.scale, executor=executor, **_run_arguments(options))
    if options.json:
        _print_json(result.to_dict())
    else:
        print(result)
        print(_plan_line(model))
    verdicts = {claim.verdict for claim in result.claims}
    return next(EXIT_CODES[v] for v in ("refuted", "inconclusive", "confirmed") if v in verdicts)


def _plan_line(model: QueryKeyModel) -> str:
    try:
        needed = samples_for_precision(model.moments().kurtosis)
    except ValueError:
        return "plan: no number of samples gives the variance to ±1 %, as this law has no finite kurtosis"
    return f"plan: {needed:,} pairs give the variance to ±1 % in one 95 % interval"


def _sweep(options: argparse.Namespace) -> int:
    with executor_at(options.dask) as executor:
        result = sweep(options.d_k, executor=executor, **_run_arguments(options), **_departures(options))
    if options.json:
        _print_json(result.to_dict())
    else:
        print(result)
    return 0


def _decay(options: argparse.Namespace) -> int:
    # a table of everything would not fit a screen: unless asked, print what the page shows first
    brief = ("trace", "query_gradient") if options.quantity is None and not options.json else QUANTITIES
    shown = ("mean", "rms", "median") if options.statistic is None and not options.json else ROW_STATISTICS
    with executor_at(options.dask) as executor:
        result = gradient_decay(
            options.d_k,
            options.keys,
            n_rows=options.rows,
            quantities=options.quantity or brief,
            statistics=options.statistic or shown,
            sampler=options.sampler,
            rng=options.seed,
            confidence=options.confidence,
            precision=options.precision,
            workers=options.workers,
            executor=executor,
            progress=_progress("heads"),
            **_departures(options),
        )
    if options.json:
        _print_json(result.to_dict())
    else:
        print(result)
    return 0


def _scorings(options: argparse.Namespace) -> int:
    # as for decay: unless asked, a table of what the page shows first
    brief = ("logit_std", "aligned_logit", "aligned_weight", "trace", "query_gradient")
    result = compare_scorings(
        options.scoring,
        options.d_k,
        options.keys,
        options.correlation,
        aligned=options.aligned,
        quantities=options.quantity or (ROW_QUANTITIES if options.json else brief),
        n_rows=options.rows,
        rng=options.seed,
        confidence=options.confidence,
        workers=options.workers,
        progress=_progress(),
    )
    print(result.to_json() if options.json else result)
    return 0


def _softmax(options: argparse.Namespace) -> int:
    logits = logits_from_text(" ".join(options.logits), most=MAX_LOGITS)
    sizes = jacobian_sizes(logits)
    names = ("trace", "frobenius", "spectral_norm", "largest_entry", "entropy")
    figures = {name: float(getattr(sizes, name)) for name in names}
    weights, jacobian = softmax(logits), softmax_jacobian(logits)
    if options.json:
        record = {"logits": logits, "weights": weights.tolist(), "jacobian": jacobian.tolist(), **figures}
        _print_json(record)
        return 0
    print("weights    ", " ".join(f"{weight:>12.6g}" for weight in weights))
    for label, row in zip(["jacobian"] + [""] * (len(logits) - 1), jacobian, strict=True):
        print(f"{label:<11}", " ".join(f"{entry:>12.6g}" for entry in row))
    for name, figure in figures.items():
        print(f"{name.replace('_', ' '):<14} {figure:.10g}")
    print("all exact to rounding; derivatives are with respect to the logits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
