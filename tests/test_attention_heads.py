"""Attention heads: the exact grid by Monte Carlo, two samplers of one law, joint moments, slices, refusals.

Statistical tests state their level, and a planted fault beside each shows that it can fail. The seed is fixed;
TEST_SEED=1, 2, … repeats them with other numbers.
"""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from simulation import attention_heads
from simulation.attention_heads import Heads, draw_heads, draw_rows, heads_in_chunk, require_sampler
from simulation.model import ENTRIES, QueryKeyModel
from simulation.row_sizes import row_sizes
from simulation.row_theory import query_gradient_square
from simulation.softmax import sizes_of

LEVEL = 1e-4  # of the chi-square checks on the grid, two-sided: three of them, one false alarm in 3,300 seeds
KS_LEVEL = 1e-5  # of a two-sample test: 23 of them, one false alarm in 4,300 seeds
Z = 4.65  # two-sided normal tail 3.3e-6: 42 moments, one false alarm in 7,000 seeds
SMALL, SHAPE = QueryKeyModel(9), (3, 5)  # just above m + n, where the conditional sampler begins to compress
FUNCTIONALS = ("E_tr_J", "E_frob2", "E_entropy")


# --- the exact grid ----------------------------------------------------------------------------------------------


def grid_p_values(cells, seed, *, fewer_keys=0, power=0.5):
    """Two-sided p-value of sum z^2 for each functional, z that of the mean over conditional rows of a cell."""
    scores = []
    for cell in cells:
        n, d = cell["n"], cell["d"]
        rows = 2000 if n <= 128 else 500
        stream = np.random.SeedSequence([seed, n, d, int(cell["scaled"])])
        logits = draw_rows(QueryKeyModel(d), stream, rows, n - fewer_keys)
        scale = d**-power if cell["scaled"] else 1.0
        sizes = row_sizes(Heads(logits, ()), [scale], ("trace", "frobenius", "entropy"))[0]
        values = np.array([sizes["trace"], sizes["frobenius"] ** 2, sizes["entropy"]])
        errors = values.std(axis=1, ddof=1) / np.sqrt(rows)
        scores.append((values.mean(axis=1) - [cell[name] for name in FUNCTIONALS]) / errors)
    upper = stats.chi2.sf(np.square(scores).sum(axis=0), len(cells))
    return dict(zip(FUNCTIONALS, 2 * np.minimum(upper, 1 - upper), strict=True))


def test_conditional_rows_have_the_exact_expectations_of_the_grid(reference, seed):
    cells = reference["attention_row_grid"]
    assert len(cells) == 253
    assert min(grid_p_values(cells, seed).values()) > LEVEL


def test_the_grid_catches_a_trace_without_the_sum_of_squares(reference, seed, monkeypatch):
    def faulty(row, *, spectral=True):
        sizes = sizes_of(row, spectral=spectral)
        return dataclasses.replace(sizes, trace=sizes.rest * (2 - sizes.rest))

    monkeypatch.setattr("simulation.row_sizes.sizes_of", faulty)
    found = grid_p_values([cell for cell in reference["attention_row_grid"] if cell["n"] <= 128], seed)
    assert found["E_tr_J"] < LEVEL
    assert min(found["E_frob2"], found["E_entropy"]) > LEVEL


@pytest.mark.parametrize("fault", [{"power": 1.0}, {"fewer_keys": 1}], ids=["scale 1/d_k", "n - 1 keys"])
def test_the_grid_catches_a_wrong_scale_and_a_missing_key(reference, seed, fault):
    cells = [cell for cell in reference["attention_row_grid"] if 3 <= cell["n"] <= 128]
    assert max(grid_p_values(cells, seed, **fault).values()) < LEVEL
    assert min(grid_p_values(cells, seed).values()) > LEVEL


# --- two samplers, one law ---------------------------------------------------------------------------------------


def many_heads(model, sampler, shape, heads, seed):
    """Logits (heads, m, n) and keys (heads, n, w) of independent heads, as many chunks as it takes."""
    size, logits, keys = heads_in_chunk(model.d_k, *shape, sampler), [], []
    for place, start in enumerate(range(0, heads, size)):
        stream = np.random.SeedSequence([seed, model.d_k], spawn_key=(place,))
        chunk = draw_heads(model, stream, *shape, sampler, keep=min(size, heads - start))
        logits.append(chunk.logits)
        keys.append(np.concatenate(list(chunk.key_slices), axis=-1))
    return Heads(np.concatenate(logits), (np.concatenate(keys),))


def head_statistics(model, sampler, shape, seed, heads=4000):
    """Numbers of independent heads, arrays (heads,): of one row, of two rows that share keys, of two keys."""
    drawn = many_heads(model, sampler, shape, heads, seed)
    scaled, raw = row_sizes(drawn, [model.d_k**-0.5, 1.0], ("trace", "query_gradient"))
    (keys,) = drawn.key_slices
    return {
        "query_scaled": scaled["query_gradient"][:, 0],
        "query_raw": raw["query_gradient"][:, 0],
        "trace": raw["trace"][:, 0],
        "two_rows": np.einsum("hn,hn->h", drawn.logits[:, 0], drawn.logits[:, 1]),
        "two_keys": np.einsum("hw,hw->h", keys[:, 0], keys[:, 1]),
    }


def ks_p_values(one, other):
    return {name: stats.ks_2samp(one[name], other[name]).pvalue for name in one}


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (QueryKeyModel(8), SHAPE),  # at m + n the conditional sampler draws every component
        (SMALL, SHAPE),  # just above it, it compresses
        (QueryKeyModel(60, q_std=0.5, k_std=3), SHAPE),
        (QueryKeyModel(40), (6, 2)),
    ],
)
def test_plain_and_conditional_heads_agree_in_law(model, shape, seed):
    plain, conditional = (
        head_statistics(model, s, shape, seed + i) for i, s in ((1000, "plain"), (2000, "conditional"))
    )
    assert min(ks_p_values(plain, conditional).values()) > KS_LEVEL


@pytest.mark.parametrize("d_k", [1, 3, 200])
def test_conditional_rows_agree_in_law_with_rows_of_plain_heads(d_k, seed):
    model, rows, n = QueryKeyModel(d_k, q_std=1.5, k_std=2), 4000, 4
    plain = many_heads(model, "plain", (1, n), rows, seed).logits[:, 0]
    conditional = draw_rows(model, np.random.SeedSequence([seed, 77]), rows, n)
    (one,), (other,) = (row_sizes(Heads(x, ()), [0.4], ("trace",)) for x in (plain, conditional))
    assert stats.ks_2samp(one["trace"], other["trace"]).pvalue > KS_LEVEL


def no_loss_of_freedom(rng, heads, size, freedom):
    """Bartlett's matrices with one number of degrees of freedom all along the diagonal."""
    lower = np.tril(rng.standard_normal((heads, size, size)), -1)
    places = np.arange(size)
    lower[:, places, places] = np.sqrt(rng.chisquare(freedom, (heads, size)))
    return lower


REAL_BARTLETT = attention_heads._bartlett


@pytest.mark.parametrize("more", [1, -1])
def test_one_degree_of_freedom_more_or_less_is_told_apart(more, seed, monkeypatch):
    plain = head_statistics(SMALL, "plain", SHAPE, seed + 1000)
    monkeypatch.setattr(
        attention_heads, "_bartlett", lambda rng, *size: REAL_BARTLETT(rng, *size[:-1], size[-1] + more)
    )
    assert min(ks_p_values(plain, head_statistics(SMALL, "conditional", SHAPE, seed + 2000)).values()) < KS_LEVEL


def test_a_diagonal_of_equal_degrees_of_freedom_is_told_apart(seed, monkeypatch):
    plain = head_statistics(SMALL, "plain", SHAPE, seed + 1000)
    monkeypatch.setattr(attention_heads, "_bartlett", no_loss_of_freedom)
    assert min(ks_p_values(plain, head_statistics(SMALL, "conditional", SHAPE, seed + 2000)).values()) < KS_LEVEL


# --- joint moments -----------------------------------------------------------------------------------------------


def off_diagonal(square):
    """Mean of the entries off the diagonal of square matrices (heads, n, n)."""
    n = square.shape[-1]
    return (square.sum(axis=(1, 2)) - np.trace(square, axis1=1, axis2=2)) / (n * (n - 1))


def moment_scores(heads, d):
    """z of products of logits and keys, averaged over each head, and of the squared query gradient.

    Given q the logits are independent N(0, |q|^2), given k they are N(0, |k|^2).
    """
    x, (k,) = heads.logits, heads.key_slices
    across, square, gram = x.swapaxes(1, 2), np.square(x), k @ k.swapaxes(1, 2)
    m, n = x.shape[1:]
    fourth = d * d + 2 * d
    found = {
        "x": (x.mean(axis=(1, 2)), 0),
        "x^2": (square.mean(axis=(1, 2)), d),
        "one query, two keys": (off_diagonal(square.swapaxes(1, 2) @ square) / m, fourth),
        "one key, two queries": (off_diagonal(square @ square.swapaxes(1, 2)) / n, fourth),
        "two queries, two keys": (
            off_diagonal(np.square(x @ across) - square @ square.swapaxes(1, 2)) / (n * (n - 1)),
            d,
        ),
        "|k|^2": (np.trace(gram, axis1=1, axis2=2) / n, d),
        "(k.k')^2": (off_diagonal(np.square(gram)), d),
        "x x' k.k'": (off_diagonal((across @ x) * gram) / m, d),
    }
    for scale, sizes in zip((d**-0.5, 1.0), row_sizes(heads, [d**-0.5, 1.0], ("query_gradient",)), strict=True):
        squares = np.square(sizes["query_gradient"]).mean(axis=1)
        found[f"query gradient, scale {scale:.3g}"] = squares, query_gradient_square(n, d, scale=scale)
    return {name: (v.mean() - exact) / (v.std(ddof=1) / np.sqrt(len(v))) for name, (v, exact) in found.items()}


@pytest.mark.parametrize(
    ("sampler", "d"), [("plain", 10), ("conditional", 10), ("conditional", 64), ("conditional", 10**6)]
)
def test_heads_have_the_joint_moments_of_rows_that_share_keys(sampler, d, seed):
    scores = moment_scores(many_heads(QueryKeyModel(d), sampler, (4, 5), 6000, seed), d)
    assert max(map(abs, scores.values())) < Z, scores


def test_keys_of_another_head_are_told_apart(seed):
    """The check sees whether the keys handed over are those behind the logits."""
    heads = many_heads(QueryKeyModel(64), "conditional", (4, 5), 2000, seed)
    (keys,) = heads.key_slices
    assert abs(moment_scores(Heads(heads.logits, (np.roll(keys, 1, axis=0),)), 64)["x x' k.k'"]) > 3 * Z


@pytest.mark.parametrize("sampler", ["plain", "conditional"])
def test_standard_deviations_multiply(sampler, seed):
    logits = many_heads(QueryKeyModel(50, q_std=0.5, k_std=4), sampler, (3, 3), 3000, seed).logits
    means = np.square(logits).mean(axis=(1, 2))
    assert abs(means.mean() - 50 * 2**2) < Z * means.std(ddof=1) / np.sqrt(len(means))


# --- chunks and slices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d_k", "width"), [(37, 8), (16, 8), (3, 1)])
def test_slices_of_the_keys_are_drawn_again_alike_and_are_those_behind_the_logits(d_k, width, seed, monkeypatch):
    monkeypatch.setattr(attention_heads, "heads_in_chunk", lambda *_: 2)
    monkeypatch.setattr(attention_heads, "_SLICE_NUMBERS", 2 * 5 * width)
    heads = draw_heads(QueryKeyModel(d_k), np.random.SeedSequence(seed), 2, 3, "plain")
    once, again = (np.concatenate(list(heads.key_slices), axis=-1) for _ in range(2))
    assert once.shape == (2, 3, d_k)
    assert (once == again).all()
    assert max(part.shape[-1] for part in heads.key_slices) == width
    queries = np.concatenate([q for q, _ in heads.key_slices.pairs()], axis=-1)
    np.testing.assert_allclose(heads.logits, queries @ once.swapaxes(1, 2), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sampler", ["plain", "conditional"])
@pytest.mark.parametrize("d_k", [1, 7, 100])
def test_heads_follow_from_their_stream_and_fewer_are_the_first_of_many(sampler, d_k, seed):
    model, stream = QueryKeyModel(d_k), np.random.SeedSequence(seed)
    every, few, other = (
        draw_heads(model, s, 2, 3, sampler, keep=k)
        for s, k in ((stream, None), (stream, 4), (np.random.SeedSequence(99), 4))
    )
    assert every.logits.shape == (heads_in_chunk(d_k, 2, 3, sampler), 2, 3)
    assert every.logits.dtype == np.float64
    assert (few.logits == every.logits[:4]).all()
    assert (few.logits != other.logits).all()
    for some, all_ in zip(few.key_slices, every.key_slices, strict=True):
        assert (some == all_[:4]).all()


def test_compressed_heads_are_no_wider_than_their_queries_and_keys():
    (keys,) = draw_heads(QueryKeyModel(10**6), np.random.SeedSequence(0), 3, 4, "conditional", keep=2).key_slices
    assert keys.shape == (2, 4, 7)


@pytest.mark.parametrize(
    ("d_k", "m", "n"), [(1, 1, 2), (10**6, 2, 2), (64, 128, 128), (1024, 128, 4096), (1, 4096, 4096)]
)
@pytest.mark.parametrize("sampler", ["plain", "conditional"])
def test_a_chunk_holds_a_bounded_number_of_numbers(d_k, m, n, sampler):
    heads = heads_in_chunk(d_k, m, n, sampler)
    assert heads >= 1
    width = d_k if sampler == "plain" else min(d_k, m + n)
    assert heads == 1 or heads * (m + n) * width <= 2**20
    assert heads == 1 or heads * m * n <= 2**18


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [entries for entries in ENTRIES if entries != "normal"])
def test_the_conditional_sampler_refuses_other_entries(entries):
    model = QueryKeyModel(64, entries, df=5 if entries == "student_t" else None)
    with pytest.raises(
        ValueError, match=f"`sampler` 'conditional' needs normal entries .* entries '{entries}', means 0 and 0"
    ):
        require_sampler(model, "conditional")
    require_sampler(model, "plain")


@pytest.mark.parametrize(("mean", "said"), [({"q_mean": 0.5}, "means 0.5 and 0"), ({"k_mean": -1}, "means 0 and -1")])
def test_the_conditional_sampler_refuses_means(mean, said):
    with pytest.raises(ValueError, match=f"needs normal entries with mean 0.* entries 'normal', {said}"):
        require_sampler(QueryKeyModel(64, **mean), "conditional")
    require_sampler(QueryKeyModel(64, **mean), "plain")


@pytest.mark.parametrize("sampler", ["plain", "conditional"])
def test_heads_refuse_a_correlation(sampler):
    with pytest.raises(ValueError, match=r"`correlation` must be 0 for attention heads: .* received 0\.25"):
        require_sampler(QueryKeyModel(64, correlation=0.25), sampler)
    require_sampler(QueryKeyModel(64), sampler)
