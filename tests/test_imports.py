"""Importing the package is light: NumPy and SciPy, and none of what only pages and charts need."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("streamlit", "altair", "pandas", "matplotlib", "scipy.stats", "scipy.optimize", "simulation.charts")


def loaded_by(statement):
    """Which of the heavy modules a fresh interpreter has loaded after `statement`."""
    code = f"{statement}\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.split()


@pytest.mark.parametrize("statement", ["import simulation", "import simulation.__main__", "from simulation import *"])
def test_importing_the_package_loads_nothing_heavy(statement):
    assert loaded_by(statement) == []


def test_a_run_needs_no_pandas_and_no_charts():
    run = (
        "from simulation import QueryKeyModel, dot_products\nstr(dot_products(QueryKeyModel(4, 'uniform'), 100, rng=0))"
    )
    assert loaded_by(run) == []


@pytest.mark.parametrize("name", ["pandas", "scipy.stats"])
def test_this_check_can_fail(name):
    assert name in loaded_by(f"import simulation, {name}")


def test_every_public_name_exists():
    import simulation

    assert simulation.__all__ == sorted(simulation.__all__)
    for name in simulation.__all__:
        assert getattr(simulation, name) is not None


def test_no_function_is_hidden_by_its_module():
    code = (
        "import simulation.softmax, simulation.__main__, simulation.comparison, simulation.measured\n"
        "import simulation as s\n"
        "print(all(callable(getattr(s, n)) for n in s.__all__ if n != '__version__'), set(s.__all__) <= set(dir(s)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_real_queries_and_keys_are_imported_when_asked_for():
    loaded = "print('simulation.measured' in sys.modules)"
    code = f"import sys, simulation; {loaded}; simulation.diagnose; {loaded}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    import simulation

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        simulation.nothing  # noqa: B018
