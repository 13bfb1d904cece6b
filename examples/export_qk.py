"""Export the queries and keys of every layer and head of a Hugging Face transformer.

In: a text model (a name on the hub or a folder on disk) and a text. Out: one .npz file with q, k and
what is needed to read them. Needs `pip install torch transformers`; nothing else in this repository does.

    python examples/export_qk.py --model FOLDER_OR_NAME --output heads.npz

How it works, for a model of your own: a forward hook on a projection sees what the projection returns,
(batch, tokens, heads · d_k); keep it, cut it into heads, stack the layers. That is all `capture` does.

Arrays of the file, none of them pickled:

    q                (layers, heads, tokens, d_k)      queries, as projected
    k                (layers, key heads, tokens, d_k)  keys; query head h uses key head h // (heads / key heads)
    scale            (layers,)                         the factor that this model puts on q·k
    attention_error  (layers,)                         largest |softmax(scale · q kᵀ) - the model's own weights|,
                                                       from q and k as stored; NaN if the model gives no weights
    tokens, model, notes                               text

Families handled: a query and a key projection side by side, named query/key (BERT, RoBERTa, ELECTRA,
ALBERT), q_proj/k_proj (Llama, Mistral, Qwen2, Gemma, OPT, BART), q_lin/k_lin (DistilBERT) or q/k (T5, MPNet);
fused projections of GPT-2, GPT-NeoX, BLOOM, Phi-3 and ModernBERT. Of an encoder-decoder model, its encoder.
Anything else ends in an error, not in a guess.

What a projection does not show: q and k of rotary models (Llama, GPT-NeoX, ...) come out *before* rotation,
those of models that normalise q and k (Qwen3, OLMo2, ...) before that, and biases added to the logits (BLOOM,
T5, MPNet) are not in q·k at all. `notes` says what was recognised; `attention_error` measures it for every model.
"""

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

# Charles Darwin, On the Origin of Species, 1st edition (London: John Murray, 1859), p. 1. Public domain.
PASSAGE = (
    "When on board H.M.S. 'Beagle,' as naturalist, I was much struck with certain facts in the distribution of the "
    "inhabitants of South America, and in the geological relations of the present to the past inhabitants of that "
    "continent. These facts seemed to me to throw some light on the origin of species—that mystery of mysteries, as "
    "it has been called by one of our greatest philosophers. On my return home, it occurred to me, in 1837, that "
    "something might perhaps be made out on this question by patiently accumulating and reflecting on all sorts of "
    "facts which could possibly have any bearing on it.\n"
)

SEPARATE = (("query", "key"), ("q_proj", "k_proj"), ("q_lin", "k_lin"), ("q", "k"))
FUSED = {
    "gpt2": ("c_attn", "blocks"),
    "phi3": ("qkv_proj", "blocks"),
    "modernbert": ("Wqkv", "blocks"),
    "gpt_neox": ("query_key_value", "interleaved"),
    "bloom": ("query_key_value", "interleaved"),
}
UNSCALED = ("gpt_neo", "t5")  # these put no factor on q·k
ROTARY = ("gptj", "roformer")  # rotary without a module named so
BEYOND_ROUNDING = 1e-3  # a difference between attention weights that float32 does not explain
WIDTH_NAMES = ("head_dim", "attention_head_size", "head_size", "key_value_proj_dim")
SCALE_NAMES = ("scaling", "scale", "inv_norm_factor")


@dataclass
class Export:
    """What one forward pass shows: q, k, the scale by layer, the model's own attention weights, and notes."""

    q: np.ndarray
    k: np.ndarray
    scale: np.ndarray
    weights: list[np.ndarray] | None
    notes: list[str] = field(default_factory=list)


def split_heads(flat: np.ndarray, d_k: int) -> np.ndarray:
    """Return a projection's output, (tokens, heads · d_k), as (heads, tokens, d_k)."""
    if flat.shape[-1] % d_k:
        raise ValueError(f"a projection is {flat.shape[-1]} wide, which is no whole number of heads of d_k = {d_k}.")
    return flat.reshape(len(flat), -1, d_k).swapaxes(0, 1)


def split_fused(flat: np.ndarray, layout: str, d_k: int, heads: int, key_heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return q and k, (heads, tokens, d_k), of a fused projection's output.

    `layout` is "blocks" (all of q, then all of k, then all of v) or "interleaved" (q, k, v of head 0, then
    of head 1, ...).
    """
    expected = (heads + 2 * key_heads) * d_k
    if flat.shape[-1] != expected:
        raise ValueError(f"the fused projection is {flat.shape[-1]} wide; {expected} were expected.")
    if layout == "blocks":
        q, k, _ = np.split(flat, [heads * d_k, (heads + key_heads) * d_k], axis=-1)
        return split_heads(q, d_k), split_heads(k, d_k)
    if layout == "interleaved":
        q, k, _ = flat.reshape(len(flat), heads, 3, d_k).transpose(2, 1, 0, 3)
        return q, k
    raise ValueError(f"`layout` must be blocks or interleaved; received {layout!r}.")


def attention_weights(q: np.ndarray, k: np.ndarray, scale: float, *, causal: bool = False) -> np.ndarray:
    """Return softmax(scale · q kᵀ) of one layer, (heads, tokens, tokens), in float64."""
    keys = np.repeat(k.astype(np.float64), q.shape[0] // k.shape[0], axis=0)  # grouped queries share a key head
    logits = scale * (q.astype(np.float64) @ keys.swapaxes(-1, -2))
    if causal:
        logits[..., ~np.tri(*logits.shape[-2:], dtype=bool)] = -np.inf
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def attention_error(export: Export) -> np.ndarray:
    """Return, by layer, the largest difference between weights from q and k and the model's own, or NaN."""
    if export.weights is None:
        return np.full(len(export.q), math.nan)
    errors = []
    for q, k, scale, own in zip(export.q, export.k, export.scale, export.weights, strict=True):
        causal = own.shape[-1] > 1 and not np.triu(own, 1).any()
        errors.append(np.abs(attention_weights(q, k, scale, causal=causal) - own).max())
    return np.array(errors)


def rounded(name: str, values: np.ndarray, dtype: str) -> np.ndarray:
    """Return `values` in `dtype`; raise where they are not finite or do not fit."""
    if not np.isfinite(values).all():
        raise ValueError(f"`{name}` has {np.count_nonzero(~np.isfinite(values))} values that are not finite.")
    if np.abs(values).max() > np.finfo(dtype).max:
        raise ValueError(f"`{name}` reaches {np.abs(values).max():.3g}, too large for {dtype}; use --dtype float32.")
    return values.astype(dtype)


def projections(model: Any) -> list[tuple[Any, tuple[str, ...]]]:
    """Return each attention module of `model` with the names of its query and key (or fused) projections."""
    kind = model.config.get_text_config().model_type
    choices: Iterable[tuple[str, ...]] = [FUSED[kind][:1]] if kind in FUSED else SEPARATE
    found = []
    for module in model.modules():
        children = dict(module.named_children())
        for names in choices:
            if all(hasattr(children.get(name), "weight") for name in names):
                found.append((module, names))
                break
    if not found:
        pairs = ", ".join("/".join(pair) for pair in SEPARATE)
        raise ValueError(
            f"no query and key projections recognised in a model of type {kind!r}; handled are projections named "
            f"{pairs}, and the fused ones of {', '.join(FUSED)}."
        )
    return found


def model_scale(attention: Any, kind: str, d_k: int) -> tuple[float, str]:
    """Return the factor that `attention` puts on q·k, and a note when it had to be assumed."""
    for name in SCALE_NAMES:
        value = getattr(attention, name, None)
        if isinstance(value, (int, float)):
            return float(value), ""
    if kind in UNSCALED:
        return 1.0, ""
    return d_k**-0.5, "the model does not name its scale; 1/sqrt(d_k) is assumed"


def layer_heads(config: Any, attention: Any, outputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return q and k, (heads, tokens, d_k), of one layer from what its hooks kept."""
    heads = config.num_attention_heads
    named = (getattr(attention, name, None) for name in WIDTH_NAMES)
    d_k = next((width for width in named if isinstance(width, int)), config.hidden_size // heads)
    if len(outputs) == 1:
        key_heads = getattr(config, "num_key_value_heads", None) or heads
        return split_fused(outputs[0], FUSED[config.model_type][1], d_k, heads, key_heads)
    q, k = (split_heads(output, d_k) for output in outputs)
    if len(q) != heads or heads % len(k):
        raise ValueError(f"the model has {heads} heads, but its projections have {len(q)} (q) and {len(k)} (k).")
    return q, k


def describe(model: Any, attentions: Iterable[Any]) -> list[str]:
    """Return notes on what stands between the projections and the softmax of this model."""
    notes = []
    rotary = any("rotary" in type(module).__name__.lower() for module in model.modules())
    if rotary or model.config.model_type in ROTARY:
        notes.append("q and k are before the rotary position embedding: softmax sees them rotated")
    if any(name.startswith(("q_norm", "q_layer")) for a in attentions for name, _ in a.named_children()):
        notes.append("q and k are before the model's normalisation of queries and keys")
    return notes


def capture(model: Any, inputs: dict[str, Any]) -> Export:
    """Run `model` once on one text and return the queries and keys of every layer, in float32.

    `model` is in evaluation mode, with attn_implementation="eager" so that it hands out its attention
    weights; `inputs` is what its tokenizer returns for one text. Layers come in the order in which they
    run, so that a layer used twice (ALBERT) counts twice.
    """
    import torch

    runs: list[tuple[Any, list[np.ndarray]]] = []

    def keeper(attention: Any, first: bool) -> Any:
        def keep(_projection: Any, _inputs: Any, output: Any) -> None:
            if first:
                runs.append((attention, []))
            flat = output.detach().float().cpu().numpy()
            runs[-1][1].append(flat.reshape(-1, flat.shape[-1]))

        return keep

    handles = [
        getattr(attention, name).register_forward_hook(keeper(attention, name == names[0]))
        for attention, names in projections(model)
        for name in names
    ]
    try:
        with torch.no_grad():
            result = model(**inputs, output_attentions=True)
    finally:
        for handle in handles:
            handle.remove()
    return assemble(model, runs, getattr(result, "attentions", None))


def assemble(model: Any, runs: list[tuple[Any, list[np.ndarray]]], attentions: Any) -> Export:
    """Return the layers that `capture` kept as arrays, with scale, own weights and notes."""
    config = model.config.get_text_config()
    pairs = [layer_heads(config, attention, outputs) for attention, outputs in runs]
    if len({(q.shape, k.shape) for q, k in pairs}) != 1:
        raise ValueError("layers differ in heads or d_k, so that q and k do not stack into one array.")
    scales = [model_scale(attention, config.model_type, pairs[0][0].shape[-1]) for attention, _ in runs]
    notes = describe(model, [attention for attention, _ in runs]) + sorted({note for _, note in scales if note})
    complete = attentions is not None and len(attentions) == len(runs) and all(a is not None for a in attentions)
    return Export(
        q=np.stack([q for q, _ in pairs]),
        k=np.stack([k for _, k in pairs]),
        scale=np.array([scale for scale, _ in scales]),
        weights=[a[0].detach().float().cpu().numpy() for a in attentions] if complete else None,
        notes=notes,
    )


def load_model(name: str) -> tuple[Any, Any]:
    """Return tokenizer and model (float32, evaluation mode, attention weights handed out)."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise ValueError(f"torch and transformers are needed: pip install torch transformers ({error}).") from None
    if not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = transformers.AutoModel.from_pretrained(name, attn_implementation="eager", trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"`--model` {name!r} could not be loaded: {error}") from None
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    model.config.use_cache = False
    return tokenizer, model.float().eval()


def encode(tokenizer: Any, config: Any, text: str, max_tokens: int) -> tuple[dict[str, Any], list[str]]:
    """Return the model's inputs for `text`, cut to what was asked and what the model takes, and the tokens."""
    limit = min(max_tokens, tokenizer.model_max_length, getattr(config, "max_position_embeddings", max_tokens))
    inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=limit, return_token_type_ids=False)
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    if len(tokens) < 2:
        raise ValueError(f"`--text` must hold at least two tokens; received {len(tokens)}.")
    return dict(inputs), tokens


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options, checked."""
    parser = argparse.ArgumentParser(description="Export q and k of every layer and head of a transformer to .npz.")
    parser.add_argument("--model", required=True, metavar="PATH_OR_NAME", help="model folder, or name on the hub")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE.npz", help="file to write")
    parser.add_argument("--text", type=Path, metavar="FILE", help="UTF-8 text; default: a passage of Darwin, 1859")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N", help="cut the text here (default: 128)")
    parser.add_argument("--dtype", choices=["float16", "float32"], default="float16", help="of q and k (%(default)s)")
    parser.add_argument("--name", help="what the file calls the model (default: as given to --model)")
    options = parser.parse_args(argv)
    if options.output.suffix != ".npz":
        parser.error(f"`--output` must end in .npz; received {str(options.output)!r}.")
    if options.max_tokens < 2:
        parser.error(f"`--max-tokens` must be at least 2; received {options.max_tokens}.")
    return options


def run(options: argparse.Namespace) -> None:
    """Export as `options` say, and report what was written."""
    text = PASSAGE if options.text is None else options.text.read_text(encoding="utf-8")
    tokenizer, model = load_model(options.model)
    inputs, tokens = encode(tokenizer, model.config.get_text_config(), text, options.max_tokens)
    export = capture(model, inputs)
    if not export.notes and (attention_error(export) > BEYOND_ROUNDING).any():
        export.notes.append("more than q and k enters this model's softmax, such as a position bias")
    export.q, export.k = rounded("q", export.q, options.dtype), rounded("k", export.k, options.dtype)
    error = attention_error(export)
    name = options.name or options.model
    np.savez_compressed(
        options.output,
        q=export.q,
        k=export.k,
        scale=export.scale,
        attention_error=error,
        tokens=np.array(tokens, dtype=np.str_),
        model=np.array(name, dtype=np.str_),
        notes=np.array(export.notes, dtype=np.str_),
    )
    layers, heads, count, d_k = export.q.shape
    print(f"{name}: {layers} layers, {heads} heads, {export.k.shape[1]} key heads, {count} tokens, d_k = {d_k}")
    print("largest difference from the model's own attention weights, by layer:", " ".join(f"{e:.2g}" for e in error))
    for note in export.notes:
        print(f"note: {note}")
    print(f"written: {options.output}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, or 2 after one line that says what was wrong."""
    options = arguments(argv)
    try:
        run(options)
    except (OSError, ValueError) as error:
        print(f"export_qk: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
