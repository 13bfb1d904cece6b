"""What is done a faster way is the same as done the plain way: counting, products, exponentials, normals."""

import threading
from decimal import Decimal, localcontext

import numpy as np
import pytest

from simulation import products
from simulation.histograms import _FEW, Histogram
from simulation.products import product
from simulation.weights import split_scaled, split_weights

# --- histograms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [0.0, 0.1, -3e4, 1e12])
@pytest.mark.parametrize("spread", [1e-3, 0.3, 8.0, 1e5])
def test_counting_by_arithmetic_equals_searching(mean, spread, seed):
    edges = mean + spread * np.linspace(-6, 6, 121)
    if not (np.diff(edges) > 0).all():
        return
    normal = mean + 3 * spread * np.random.default_rng(seed).standard_normal(4000)
    beside = [np.nextafter(edges, side) for side in (np.inf, -np.inf)]
    x = np.concatenate([normal, edges, *beside, [1e308, -1e308, 5e-324, 0, -0.0]])
    histogram = Histogram.empty(edges)
    assert x.size > _FEW
    assert (histogram._places(x) == np.searchsorted(edges, x, side="right")).all()


def test_arithmetic_is_used_for_the_edges_of_a_run_and_for_no_others():
    assert Histogram.empty(8 * np.linspace(-6, 6, 121))._width == pytest.approx(0.8)
    uneven = np.linspace(-6, 6, 121)
    uneven[60] += 1e-3
    for edges in (uneven, np.logspace(0, 1, 9), 1e15 + np.arange(9.0), [-1.7e308, 0, 1.7e308]):
        with np.errstate(over="ignore"):
            assert Histogram.empty(edges)._width is None
    x = np.random.default_rng(0).standard_normal(1000)
    assert (Histogram.empty(uneven)._places(x) == np.searchsorted(uneven, x, side="right")).all()


# --- products ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 70, 130, 140), (1, 200, 64, 300), (3, 1, 5, 1)])
def test_blocks_and_whole_products_are_the_same_product(shape, seed):
    heads, m, w, n = shape
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((heads, m, w)), rng.standard_normal((heads, w, n))
    expected = np.einsum("hmw,hwn->hmn", a, b)
    np.testing.assert_allclose(product(a, b), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(products._in_blocks(a, b), expected, rtol=1e-12, atol=1e-12)


def test_without_a_library_that_can_be_told_products_go_in_blocks(monkeypatch):
    monkeypatch.setattr(products, "_openblas_threads", lambda: None)
    a = np.ones((100, 100))
    assert (product(a, a) == 100).all()


def test_the_library_has_its_threads_back_after_overlapping_products(monkeypatch):
    threads, seen = [7], []
    told = (lambda: threads[-1], threads.append)
    monkeypatch.setattr(products, "_openblas_threads", lambda: told)
    both = threading.Barrier(2)

    def overlapping():
        with products._one_thread(*told):
            both.wait(10)
            seen.append(threads[-1])
            both.wait(10)

    workers = [threading.Thread(target=overlapping) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert seen == [1, 1]
    assert threads == [7, 1, 7]


def test_a_product_that_fails_gives_the_threads_back():
    threads = [5]
    with pytest.raises(ZeroDivisionError), products._one_thread(lambda: threads[-1], threads.append):
        _ = 1 / 0
    assert threads == [5, 1, 5]
    assert products._inside[0] == 0


# --- several scales ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [2, 4, 8, 16])
def test_squares_of_exponentials_have_all_their_digits(ratio):
    logits = np.array([0.0, -40.0, -0.1, -3.7, -7.0])
    _, row = split_scaled(logits, (1.0, float(ratio)))
    with localcontext() as context:
        context.prec = 40
        exact = [float((ratio * Decimal(float(x))).exp()) for x in logits[1:]]
    np.testing.assert_allclose(row.others[1:], exact, rtol=2e-15 * ratio**0.5)


@pytest.mark.parametrize("scales", [(1.0, 0.125), (0.125, 1.0), (1.0, 1.0), (1.0, 0.1), (1 / 64, 1.0), (2.0, 0.5, 1.0)])
def test_all_scales_equal_each_alone(scales, seed):
    logits = np.random.default_rng(seed).normal(0, 12, (3, 4, 9))
    logits[1, 2, :3] = -np.inf
    kept = logits.copy()
    for scale, row in zip(scales, split_scaled(logits, scales), strict=True):
        alone = split_weights(scale * logits)
        assert (row.top == alone.top).all()
        for name in ("weights", "rest", "share", "log_total", "trace"):
            np.testing.assert_allclose(getattr(row, name), getattr(alone, name), rtol=2e-14, atol=1e-290)
    assert (logits == kept).all()


@pytest.mark.parametrize("gap", [1.0, 40.0, 300.0, 400.0, 690.0])
def test_tiny_traces_keep_their_digits(gap):
    logits = np.array([0.0, -gap, -gap - 0.5])
    with localcontext() as context:
        context.prec = 400
        e = [Decimal(float(x)).exp() for x in logits]
        exact = float(1 - sum(x * x for x in e) / sum(e) ** 2)
    assert split_weights(logits).trace == pytest.approx(exact, rel=4e-15, abs=0)


def test_rows_whose_axes_lie_otherwise_in_memory(seed):
    logits = np.random.default_rng(seed).normal(0, 5, (7, 5))
    assert (split_weights(logits.T).weights == split_weights(logits.T.copy()).weights).all()


@pytest.mark.parametrize("ratio", [1, 8, 64, 11.3])
def test_rows_drawn_in_float32_are_as_exact_as_their_logits(ratio, seed):
    logits = np.random.default_rng([seed, 5]).standard_normal((300, 128), dtype=np.float32) * np.float32(1.5)
    scales = (1.0, float(ratio))
    for scale, coarse, fine in zip(
        scales, split_scaled(logits, scales), split_scaled(logits.astype(np.float64), scales), strict=True
    ):
        assert coarse.others.dtype == coarse.excess.dtype == np.float64
        assert (coarse.top == fine.top).all()
        # a logit of 10 rounded to float32 is off by up to 5e-7, and so is the logarithm of its exponential
        np.testing.assert_allclose(coarse.excess, fine.excess, rtol=1e-6 * scale)
        np.testing.assert_allclose(coarse.trace, fine.trace, rtol=1e-6 * scale)
        assert abs(coarse.trace.mean() / fine.trace.mean() - 1) < 1e-7 * scale  # errors of rows cancel


def test_float32_rows_wider_than_float32_reaches_keep_their_smallest_weights():
    logits = np.array([[0.0, -100.0], [0.0, -700.0], [0.0, -np.inf]], dtype=np.float32)
    row, squared = split_scaled(logits, (1.0, 2.0))
    np.testing.assert_allclose(row.rest[:, 0], np.exp([-100.0, -700.0, -np.inf]), rtol=1e-12)
    np.testing.assert_allclose(squared.rest[:, 0], np.exp([-200.0, -1400.0, -np.inf]), rtol=1e-12)
