"""Why attention divides by √d_k: measured by Monte Carlo, beside the exact theory.

Importing it imports NumPy; its parts, when they are first asked for, import SciPy too, and nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from simulation.softmax import JacobianSizes, jacobian_sizes, softmax, softmax_jacobian

if TYPE_CHECKING:
    from simulation.comparison import ComparisonResult, compare_scorings
    from simulation.decay import DecayResult, gradient_decay
    from simulation.diagnosis import Diagnosis
    from simulation.example_data import load_example
    from simulation.experiments import dot_products, exact_law
    from simulation.measured import diagnose
    from simulation.model import QueryKeyModel
    from simulation.results import DotProductResult, SweepResult, __version__
    from simulation.statistics import Estimate, samples_for_precision
    from simulation.sweeps import iter_sweep, sweep
    from simulation.theory import DotProductLaw, distance_to_normal
    from simulation.verdicts import Claim

_WHERE = {
    "Claim": "verdicts",
    "ComparisonResult": "comparison",
    "DecayResult": "decay",
    "Diagnosis": "diagnosis",
    "DotProductLaw": "theory",
    "DotProductResult": "results",
    "Estimate": "statistics",
    "QueryKeyModel": "model",
    "SweepResult": "results",
    "__version__": "results",
    "compare_scorings": "comparison",
    "diagnose": "measured",
    "distance_to_normal": "theory",
    "dot_products": "experiments",
    "exact_law": "experiments",
    "gradient_decay": "decay",
    "iter_sweep": "sweeps",
    "load_example": "example_data",
    "samples_for_precision": "statistics",
    "sweep": "sweeps",
}

__all__ = [
    "Claim",
    "ComparisonResult",
    "DecayResult",
    "Diagnosis",
    "DotProductLaw",
    "DotProductResult",
    "Estimate",
    "JacobianSizes",
    "QueryKeyModel",
    "SweepResult",
    "__version__",
    "compare_scorings",
    "diagnose",
    "distance_to_normal",
    "dot_products",
    "exact_law",
    "gradient_decay",
    "iter_sweep",
    "jacobian_sizes",
    "load_example",
    "samples_for_precision",
    "softmax",
    "softmax_jacobian",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import what a name needs when it is first asked for: nobody uses all parts at once.

    Only functions with the name of their module are bound at once, or the module would hide them.
    """
    if name in _WHERE:
        found = globals()[name] = getattr(import_module(f"simulation.{_WHERE[name]}"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
