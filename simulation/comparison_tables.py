"""Tables of scorings as a reader wants them: the ways, published settings, initialisations, the best scale.

In: results. Out: pandas frames of text, measured numbers with their standard errors. Needs pandas.
"""

import math
from collections.abc import Sequence

import pandas as pd

from simulation.best_scale import share_of_best, typical_best_std
from simulation.comparison import ComparisonRecord, ComparisonResult
from simulation.formatting import plus_minus, significant
from simulation.initialisations import INITIALISATIONS, InitialisationDraws
from simulation.methods import METHODS
from simulation.published import Placement
from simulation.statistics import Estimate

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of published settings, on the chart and in the table


def _exact(value: float | None) -> str:
    return "unknown" if value is None else significant(value, 4)


def _measured(record: ComparisonRecord) -> str:
    value, error = record.estimate, record.standard_error
    if abs(value) >= 0.01 and 0 < error < 1e-5:  # no powers of ten beside plain numbers
        return f"{value:.7f} ± {error:.1e}"
    return plus_minus(value, error)


def ways_table(result: ComparisonResult, d_k: int, rho: float, *, own: str | None = None) -> pd.DataFrame:
    """Return a row for each scoring at one d_k: scale in force, logits for ρ = 0, the aligned key for `rho`.

    Examples
    --------
    >>> from simulation import compare_scorings
    >>> result = compare_scorings(["mup"], [64], 16, (0.0, 0.5), rng=0)
    >>> ways_table(result, 64, 0.5)["std, theory"][0]
    '0.125'
    """

    def one(label: str, correlation: float, quantity: str, statistic: str = "mean") -> ComparisonRecord:
        wanted = {"scoring": label, "d_k": d_k, "correlation": correlation}
        return result.select(**wanted, quantity=quantity, statistic=statistic)[0]

    rows = []
    for label in dict.fromkeys(r.scoring for r in result.records):
        method = METHODS.get(label)
        spread, free = one(label, 0.0, "logit_std", "rms"), one(label, 0.0, "trace")
        logit, weight = (one(label, rho, quantity) for quantity in ("aligned_logit", "aligned_weight"))
        gradient = one(label, 0.0, "query_gradient", "rms")
        rows.append(
            {
                "way": method.title if method else label,
                "logit": method.formula if method else own or label,
                "scale in force": significant(spread.effective_scale),
                "std, theory": _exact(spread.exact),
                "std, measured": _measured(spread),
                "trace, theory": _exact(free.exact),
                "trace, measured": _measured(free),
                "∂y/∂q rms, theory": _exact(gradient.exact),
                "∂y/∂q rms, measured": _measured(gradient),
                f"own key's logit, ρ = {rho:g}": _measured(logit),
                "its weight, theory": _exact(weight.exact),
                "its weight, measured": _measured(weight),
                "right when": method.right_when if method else "",
            }
        )
    return pd.DataFrame(rows)


def placements_table(places: Sequence[Placement]) -> pd.DataFrame:
    """Return a row for each published setting: its scale, where it lies, how much gradient is left."""
    return pd.DataFrame(
        [
            {
                "": letter,
                "setting": place.published.name,
                "d_k": str(place.published.d_k),
                "std of logits, exact": significant(place.std, 4),
                "freezing at": significant(place.freezing_std, 3),
                "gradient left": f"{100 * place.share:.3g} %",
                "row length shown": str(place.published.n_keys),
                "scale in force": str(place.scoring),
                "source": place.published.source,
            }
            for letter, place in zip(LETTERS, places, strict=False)
        ]
    )


def initialisations_table(draws: Sequence[InitialisationDraws]) -> pd.DataFrame:
    """Return a row for each initialisation: variance of q, and of the logits after scaling, exact and drawn."""
    rows = []
    for found in draws:
        rule, exact = INITIALISATIONS[found.exact.name], found.exact
        rows.append(
            {
                "initialisation": rule.title,
                "Var q, theory": significant(exact.query_variance, 3),
                "Var q, drawn": found.query_variance.text,
                "Var of scaled logits, theory": significant(exact.logit_variance, 3),
                "Var of scaled logits, drawn": found.logit_variance.text,
                "d_model / heads": f"{exact.d_model} / {exact.heads}",
                "weights": rule.formula,
            }
        )
    return pd.DataFrame(rows)


def best_scales(
    keys: Sequence[int], *, numbers: int = 1_000_000, seed: int = 0
) -> list[tuple[int, Estimate, Estimate]]:
    """Return, for each number of keys, the typical gradient's best std and what is left of it at std 1.

    `numbers` bounds the normals drawn for each.
    """
    found = []
    for n in keys:
        best = typical_best_std(n, rows=min(20_000, numbers // n), rng=seed)
        found.append((n, best, share_of_best(n, 1.0, best.estimate, rows=min(4_000, numbers // n), rng=seed)))
    return found


def best_scales_table(found: Sequence[tuple[int, Estimate, Estimate]]) -> pd.DataFrame:
    """Return `best_scales` as a reader wants them."""
    return pd.DataFrame(
        [
            {
                "keys n": f"{n:,}",
                "typical gradient is largest at std": best.text,
                "√(2 ln n)": f"{math.sqrt(2 * math.log(n)):.3f}",
                "share of it left at std 1 (÷ √d_k)": share.text,
            }
            for n, best, share in found
        ]
    )
