"""The real example that comes with the package: queries and keys of a trained sentence encoder.

In: nothing. Out: q and k of all 6 layers and 12 heads (d_k = 32) of all-MiniLM-L6-v2 on 128 tokens of Darwin.
Provenance and licence are in simulation/data/NOTICE.md; examples/export_qk.py made the file.
"""

from importlib import resources
from typing import TypedDict

import numpy as np
import numpy.typing as npt

FILE = "all-MiniLM-L6-v2.npz"


class ExampleData(TypedDict):
    """Queries and keys, (layers, heads, tokens, d_k), in float64; the tokens; where it all comes from."""

    q: npt.NDArray[np.float64]
    k: npt.NDArray[np.float64]
    tokens: list[str]
    source: str


def load_example() -> ExampleData:
    r"""Return the queries and keys of all-MiniLM-L6-v2 on a passage of 128 tokens.

    Returns
    -------
    dict
        ``q`` and ``k``: float64 arrays, shape (6, 12, 128, 32) for layers, heads, tokens and d_k.
        ``tokens``: the 128 tokens, ``[CLS]`` first and ``[SEP]`` last.
        ``source``: the model and the passage, in one line.

    Notes
    -----
    The model divides q·k by :math:`\sqrt{d_k}`, masks nothing and rotates nothing: softmax of
    ``q @ k.swapaxes(-1, -2) / sqrt(32)`` is its attention. Values were stored in float16; that moves no
    attention weight by more than 0.001.

    References
    ----------
    Wang et al. (2020), MiniLM, arXiv:2002.10957. Reimers and Gurevych (2019), Sentence-BERT, arXiv:1908.10084.

    Examples
    --------
    >>> example = load_example()
    >>> example["q"].shape
    (6, 12, 128, 32)
    >>> example["tokens"][:5]
    ['[CLS]', 'when', 'on', 'board', 'h']

    The footnote expects a variance of d_k. The first layer alone spans a factor of 600:

    >>> logits = example["q"] @ example["k"].swapaxes(-1, -2)
    >>> variance = logits[0].var(axis=(-2, -1)) / 32
    >>> [round(float(v), 2) for v in sorted(variance)[::11]]
    [0.29, 175.17]
    """
    with resources.files("simulation").joinpath("data", FILE).open("rb") as file, np.load(file) as stored:
        model = str(stored["model"])
        return {
            "q": stored["q"].astype(np.float64),
            "k": stored["k"].astype(np.float64),
            "tokens": [str(token) for token in stored["tokens"]],
            "source": f"{model} on the opening of Darwin, On the Origin of Species (1859)",
        }
