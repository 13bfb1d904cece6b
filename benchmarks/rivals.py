"""What a user would write instead: plain NumPy on whole arrays, PyTorch and JAX on the CPU.

Each function does one work item at one size and returns its numbers. The libraries are imported by
the process that runs them (see `worker`), never by the package.
"""

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

Numbers = dict[str, Any]
BINS, REACH = 120, 6.0  # as `dot_products` has them: six standard deviations on each side


def numpy_pairs(d_k: int, size: int, seed: int) -> Numbers:
    """Moments and histogram of q·k before and after scaling, on whole arrays."""
    import numpy as np

    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((size, d_k)), rng.standard_normal((size, d_k))
    before = (q * k).sum(1)
    found = {}
    for name, x in (("before", before), ("after", before / np.sqrt(d_k))):
        z = (x - x.mean()) / x.std()
        found[name] = [float(x.mean()), float(x.var(ddof=1)), float((z**3).mean()), float((z**4).mean())]
    reach = REACH * math.sqrt(d_k)
    found["counts"] = np.histogram(before, BINS, (-reach, reach))[0].tolist()
    return found


def torch_pairs(d_k: int, size: int, seed: int) -> Numbers:
    """As `numpy_pairs`."""
    torch = import_module("torch")

    torch.manual_seed(seed)
    q, k = torch.randn(size, d_k), torch.randn(size, d_k)
    before = (q * k).sum(1).double()
    found = {}
    for name, x in (("before", before), ("after", before / math.sqrt(d_k))):
        z = (x - x.mean()) / x.std()
        found[name] = [float(x.mean()), float(x.var()), float((z**3).mean()), float((z**4).mean())]
    reach = REACH * math.sqrt(d_k)
    found["counts"] = torch.histc(before, BINS, -reach, reach).tolist()
    return found


def jax_pairs() -> Callable[[int, int, int], Numbers]:
    """As `numpy_pairs`, compiled once for each size."""
    from functools import partial

    jax, jnp = import_module("jax"), import_module("jax.numpy")

    @partial(jax.jit, static_argnums=(0, 1))
    def compiled(d_k: int, size: int, key: Any) -> Any:
        one, other = jax.random.split(key)
        before = (jax.random.normal(one, (size, d_k)) * jax.random.normal(other, (size, d_k))).sum(1)
        moments = []
        for x in (before, before / math.sqrt(d_k)):
            z = (x - x.mean()) / x.std()
            moments.append(jnp.stack([x.mean(), x.var(ddof=1), (z**3).mean(), (z**4).mean()]))
        reach = REACH * math.sqrt(d_k)
        return moments, jnp.histogram(before, BINS, (-reach, reach))[0]

    def pairs(d_k: int, size: int, seed: int) -> Numbers:
        (before, after), counts = compiled(d_k, size, jax.random.key(seed))
        return {"before": before.tolist(), "after": after.tolist(), "counts": counts.tolist()}

    return pairs


def numpy_decay(d_k: int, rows: int, seed: int, n: int = 128) -> Numbers:
    """E tr J of rows, raw and scaled: heads of n queries and n keys, one matrix product for each batch."""
    import numpy as np

    rng, means = np.random.default_rng(seed), []
    for _ in range(_batches(d_k, rows, n)):
        size = (_heads(d_k, n), n, d_k)
        logits = rng.standard_normal(size) @ rng.standard_normal(size).swapaxes(1, 2)
        traces = []
        for scale in (1.0, d_k**-0.5):
            e = np.exp(scale * logits - (scale * logits).max(-1, keepdims=True))
            y = e / e.sum(-1, keepdims=True)
            traces.append((1 - (y * y).sum(-1)).mean(-1))
        means.append(np.stack(traces))
    return _over_groups(np.concatenate(means, axis=1), n)


def torch_decay(d_k: int, rows: int, seed: int, n: int = 128) -> Numbers:
    """As `numpy_decay`."""
    torch = import_module("torch")

    torch.manual_seed(seed)
    means = []
    for _ in range(_batches(d_k, rows, n)):
        size = (_heads(d_k, n), n, d_k)
        logits = torch.randn(size) @ torch.randn(size).transpose(1, 2)
        weights = [torch.softmax(scale * logits, -1) for scale in (1.0, d_k**-0.5)]
        means.append(torch.stack([(1 - (y * y).sum(-1)).mean(-1) for y in weights]).double().numpy())
    return _over_groups(_joined(means), n)


def torch_decay_own_keys(d_k: int, rows: int, seed: int, n: int = 128) -> Numbers:
    """As `numpy_decay`, each query with its own keys: rows are independent."""
    torch = import_module("torch")

    torch.manual_seed(seed)
    batch, means = max(1, min(rows, 2**23 // (n * d_k))), []
    for _ in range(-(-rows // batch)):
        logits = (torch.randn(batch, 1, d_k) * torch.randn(batch, n, d_k)).sum(-1)
        weights = [torch.softmax(scale * logits, -1) for scale in (1.0, d_k**-0.5)]
        means.append(torch.stack([1 - (y * y).sum(-1) for y in weights]).double().numpy())
    return _over_groups(_joined(means), 1)


def jax_decay(n: int = 128) -> Callable[[int, int, int], Numbers]:
    """As `numpy_decay`, compiled once for each size."""
    from functools import partial

    import numpy as np

    jax, jnp = import_module("jax"), import_module("jax.numpy")

    @partial(jax.jit, static_argnums=0)
    def compiled(d_k: int, key: Any) -> Any:
        one, other = jax.random.split(key)
        size = (_heads(d_k, n), n, d_k)
        logits = jax.random.normal(one, size) @ jax.random.normal(other, size).swapaxes(1, 2)
        weights = [jax.nn.softmax(scale * logits, -1) for scale in (1.0, d_k**-0.5)]
        return jnp.stack([(1 - (y * y).sum(-1)).mean(-1) for y in weights])

    def decay(d_k: int, rows: int, seed: int) -> Numbers:
        keys = jax.random.split(jax.random.key(seed), _batches(d_k, rows, n))
        return _over_groups(_joined([np.asarray(compiled(d_k, key), np.float64) for key in keys]), n)

    return decay


def _heads(d_k: int, n: int) -> int:
    """Return how many heads a batch holds: q and k of about a million numbers, at least one head."""
    return max(1, 2**19 // (n * d_k))


def _batches(d_k: int, rows: int, n: int) -> int:
    return max(1, -(-rows // (n * _heads(d_k, n))))


def _joined(parts: list[Any]) -> Any:
    import numpy as np

    return np.concatenate(parts, axis=1)


def _over_groups(means: Any, group: int) -> Numbers:
    """Return mean and standard error from the means of independent groups of rows, (2, groups)."""
    groups = means.shape[1]
    mean = means.mean(axis=1).tolist()
    error = (means.std(axis=1, ddof=1) / math.sqrt(groups)).tolist() if groups > 1 else [math.nan, math.nan]
    return {"raw": [mean[0], error[0]], "scaled": [mean[1], error[1]], "rows": group * groups}
