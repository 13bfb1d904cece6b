"""The benchmarks run at tiny size, and all programs give the same numbers within their errors. Nothing is timed."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from benchmarks.runs import ROOT, compare, environment, import_seconds, installed
from simulation.row_theory import attention_row

Z = 5.5  # standard errors: by chance once in 10^6 numbers


@pytest.mark.parametrize(("d_k", "size"), [(4, 20_000), (64, 5000)])
def test_all_programs_measure_the_same_pairs(d_k, size):
    for name, run in compare("pairs", d_k, size, 1).items():
        (numbers,) = run.numbers
        # exact standard errors of mean and variance; kurtosis 3 + 6 / d_k
        spread = math.sqrt(d_k / size), d_k * math.sqrt((2 + 6 / d_k) / size)
        for stage, factor in (("before", 1), ("after", 1 / math.sqrt(d_k))):
            mean, variance, skewness, kurtosis = numbers[stage]
            assert abs(mean) < Z * spread[0] * factor, name
            assert abs(variance - d_k * factor**2) < Z * spread[1] * factor**2, name
            assert abs(skewness) < 1, name
            assert abs(kurtosis - 3 - 6 / d_k) < 2.5, name
        counts = np.array(numbers["counts"])
        assert counts.shape == (120,), name
        assert size - 50 <= counts.sum() <= size, name
        half = stats.binom(int(counts.sum()), 0.5)
        assert half.cdf(counts[:60].sum()) > 1e-7, name
        assert half.sf(counts[:60].sum()) > 1e-7, name


@pytest.mark.parametrize("d_k", [4, 64])
def test_all_programs_measure_the_same_gradients(d_k):
    exact = {"raw": attention_row(128, d_k, scale=1).trace, "scaled": attention_row(128, d_k).trace}
    for name, run in compare("decay", d_k, 4096, 1).items():
        (numbers,) = run.numbers
        assert numbers["rows"] >= 4096, name
        for scoring, value in exact.items():
            estimate, error = numbers[scoring]
            assert 0 < error < 0.05 * value, name
            assert abs(estimate - value) < 7 * error, name  # Student's t of 31 heads: once in 10^7


def test_the_exact_grid_has_all_its_cells():
    (run,) = compare("exact", 4096, 0, 0).values()
    assert run.numbers[0]["cells"] == 253
    assert run.numbers[0]["first"] == pytest.approx(attention_row(2, 1).trace, rel=1e-12)


def test_normals_are_counted_and_have_variance_1():
    (run,) = compare("normals", 1, 10**6, 0).values()
    found = run.numbers[0]
    assert 0.8e6 < found["n"] <= 1e6
    assert abs(found["variance"] - 1) < Z * math.sqrt(2 / found["n"])


def test_this_package_and_numpy_take_part_always():
    assert {"this package", "NumPy"} <= set(installed("pairs"))
    assert {"this package, plain", "this package, conditional", "NumPy, heads"} <= set(installed("decay"))


def test_a_worker_that_dies_is_reported():
    with pytest.raises(RuntimeError, match="ended without an answer"):
        compare("pairs", 0, 1, 0, only=("this package",))


def test_importing_takes_time():
    (seconds,) = import_seconds("import time; time.sleep(0.01)", 1)
    assert seconds >= 0.01


def test_the_command_prints_a_table():
    command = [sys.executable, "-m", "benchmarks", "--quick", "pairs"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.startswith("| Moments and histogram of q·k | seconds |")
    assert "| 20,000 pairs, d_k = 64: this package |" in done.stdout


def test_the_command_refuses_a_table_it_does_not_have():
    command = [sys.executable, "-m", "benchmarks", "speed"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "received 'speed'" in done.stderr
