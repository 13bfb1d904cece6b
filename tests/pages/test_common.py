"""The shared parts of the pages: the bounded store and the checks of linked values."""

import pytest

from pages import common


def test_store_keeps_the_last_used() -> None:
    store = common.Store(2)
    for key in "abc":
        store.put(key, key.upper())
        store.get("b")
    assert (store.get("a"), store.get("b"), store.get("c")) == (None, "B", "C")


@pytest.mark.parametrize("text", ["", "x", "1e3", "0", "11", "٣٣", "9" * 5000])
def test_whole_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="a whole number from 1 to 10"):
        common.whole(1, 10)(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-2", "x"])
def test_real_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="a number from -1 to 1"):
        common.real(-1, 1)(text)


def test_checks_let_good_values_through() -> None:
    assert common.whole(1, 10)("7") == 7
    assert common.real(-1, 1)("-0.5") == -0.5
    assert common.option(("a", "b"))("b") == "b"
