"""Is there a best scale: the mean gradient has none, the typical one a peak near √(2 ln n)."""

import math

import pytest

from simulation.best_scale import gradient_sizes, share_of_best, typical_best_std
from simulation.row_theory import expected_max_normal
from simulation.sampling import child_seed

Z = 4.65  # two-sided normal tail 3.3e-6; about 20 comparisons


def test_the_mean_rises_and_the_typical_gradient_peaks(seed):
    sizes = gradient_sizes(16, [0.5, 1, 2, 2.4, 4, 8, 16], rows=4000, rng=child_seed(seed, 61))
    means = [size.mean for size in sizes]
    assert means == sorted(means)
    assert means[-1] == pytest.approx(expected_max_normal(16), rel=0.01)
    typical = [size.typical.estimate for size in sizes]
    assert max(typical) == typical[3]
    assert typical[-1] < 0.1 * typical[3]
    for size in sizes:
        assert size.typical.estimate <= size.mean + Z * size.typical.standard_error  # Jensen
        assert size.typical.interval[0] < size.typical.estimate < size.typical.interval[1]


@pytest.mark.parametrize(("n", "share"), [(2, 0.97), (3, 0.89), (16, 0.65), (128, 0.47)])
def test_what_sqrt_d_k_leaves_of_the_best(seed, n, share):
    best = typical_best_std(n, rows=4000, rng=child_seed(seed, 62, n))
    found = share_of_best(n, 1.0, best.estimate, rows=4000, rng=child_seed(seed, 63, n))
    assert abs(found.estimate - share) < Z * found.standard_error + 0.005
    assert found.estimate < 1


def test_the_share_comes_from_the_same_rows(seed):
    found = share_of_best(8, 1.0, 1.0, rng=seed)
    assert (found.estimate, found.standard_error) == (1.0, 0.0)
    one, other = gradient_sizes(8, [1.0, 2.0], rows=2000, rng=seed)
    assert share_of_best(8, 1.0, 2.0, rows=2000, rng=seed).estimate == pytest.approx(
        one.typical.estimate / other.typical.estimate
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gradient_sizes(1, [1]), r"`n_keys` must be a whole number from 2"),
        (lambda: gradient_sizes(4, [0]), r"`logit_stds` must be a number above 0"),
        (lambda: gradient_sizes(4, [math.nan]), r"`logit_stds` must be a number"),
        (lambda: gradient_sizes(1000, [1], rows=20_000), r"`rows` must be a whole number from 100 to 10,000"),
        (lambda: share_of_best(4, 1, 1, rows=1), r"`rows` must be a whole number from 100"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
