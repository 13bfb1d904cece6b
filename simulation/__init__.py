"""Why attention divides by √d_k: measured by Monte Carlo, beside the exact theory.

Importing this package imports NumPy and SciPy only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from simulation.experiments import dot_products, exact_law
from simulation.model import QueryKeyModel
from simulation.results import DotProductResult, SweepResult, __version__
from simulation.softmax import JacobianSizes, jacobian_sizes, softmax, softmax_jacobian
from simulation.statistics import Estimate, samples_for_precision
from simulation.sweeps import iter_sweep, sweep
from simulation.theory import DotProductLaw, distance_to_normal
from simulation.verdicts import Claim

if TYPE_CHECKING:
    from simulation.comparison import ComparisonResult, compare_scorings
    from simulation.decay import DecayResult, gradient_decay
    from simulation.diagnosis import Diagnosis
    from simulation.example_data import load_example
    from simulation.measured import diagnose

_WHERE = {
    "ComparisonResult": "comparison",
    "DecayResult": "decay",
    "Diagnosis": "diagnosis",
    "compare_scorings": "comparison",
    "diagnose": "measured",
    "gradient_decay": "decay",
    "load_example": "example_data",
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
    """Import what the first experiment does not need when it is first asked for."""
    if name in _WHERE:
        return getattr(import_module(f"simulation.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
