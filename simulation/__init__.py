"""Why attention divides by √d_k: measured by Monte Carlo, beside the exact theory.

Importing this package imports NumPy and SciPy only.
"""

from simulation.decay import DecayResult, gradient_decay
from simulation.experiments import dot_products, exact_law
from simulation.model import QueryKeyModel
from simulation.results import DotProductResult, SweepResult, __version__
from simulation.softmax import JacobianSizes, jacobian_sizes, softmax, softmax_jacobian
from simulation.statistics import Estimate, samples_for_precision
from simulation.sweeps import iter_sweep, sweep
from simulation.theory import DotProductLaw, distance_to_normal
from simulation.verdicts import Claim

__all__ = [
    "Claim",
    "DecayResult",
    "DotProductLaw",
    "DotProductResult",
    "Estimate",
    "JacobianSizes",
    "QueryKeyModel",
    "SweepResult",
    "__version__",
    "distance_to_normal",
    "dot_products",
    "exact_law",
    "gradient_decay",
    "iter_sweep",
    "jacobian_sizes",
    "samples_for_precision",
    "softmax",
    "softmax_jacobian",
    "sweep",
]
