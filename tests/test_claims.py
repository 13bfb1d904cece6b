"""Every claim: its numbers are what they should be, its verdict follows from them, its link opens a real page.

Drawn numbers come with fixed seeds and are held to Z standard errors of their own: with six of them a right
program fails one time in 50 000, and then always, until its draws change.
"""

import dataclasses
import math
import re
from pathlib import Path

import pytest

from pages import common
from simulation import claims
from simulation.claim_checks import CHECKS, DRAWN, EXACT, IS_DRAWN, Number, moment, two_by_two_share
from simulation.claims import GROUPS, Evidence, statements

Z = 4.65
PAGES = Path(common.__file__).parent
EVERY = {statement.id: statement for statement in statements()}
NUMBERS = {name: statement.numbers() for name, statement in EVERY.items()}


def agrees(evidence, number):
    """Whether a number is the expected one, within the tolerance of the source and its own error."""
    return abs(number.value - evidence.expected) <= evidence.tolerance + Z * (number.standard_error or 0)


def test_there_are_enough_of_every_kind():
    verdicts = [statement.verdict for statement in statements()]
    assert len(EVERY) == len(verdicts) >= 25
    assert all(verdicts.count(group) >= 8 for group in GROUPS)
    assert sum(evidence.is_drawn for s in statements() for evidence in s.evidence) >= 5


@pytest.mark.parametrize("name", EVERY)
def test_the_numbers_are_the_expected_ones(name):
    for evidence, number in zip(EVERY[name].evidence, NUMBERS[name], strict=True):
        assert agrees(evidence, number), (evidence.label, number)
        assert evidence.is_decided(number), (evidence.label, number)
        assert (number.standard_error is not None) == evidence.is_drawn


@pytest.mark.parametrize("name", EVERY)
def test_the_verdict_follows_from_the_numbers(name):
    assert EVERY[name].verdict_of(NUMBERS[name]) == EVERY[name].verdict


@pytest.mark.parametrize("name", EVERY)
def test_a_wrong_number_is_noticed(name):
    # the planted fault: each number off by a tenth of the range that decides, or by 10 %
    for evidence, number in zip(EVERY[name].evidence, NUMBERS[name], strict=True):
        width = evidence.high - evidence.low
        size = max(abs(number.value), width if 0 < width < math.inf else 0) or 1
        wrong = Number(number.value + max(0.1 * size, 10 * (number.standard_error or 0)), number.standard_error)
        assert not agrees(evidence, wrong), evidence.label


@pytest.mark.parametrize("name", EVERY)
def test_the_words_are_whole(name):
    statement = EVERY[name]
    assert re.fullmatch(r"[a-z0-9-]+", name)
    for text in (statement.statement, statement.source, statement.explanation):
        assert text == text.strip() != ""
    assert statement.statement.endswith(".")
    assert statement.explanation.endswith((".", ")"))
    assert len(statement.explanation) <= 250
    for evidence, number in zip(statement.evidence, NUMBERS[name], strict=True):
        assert evidence.range_text
        assert ("exact" in number.text) != ("±" in number.text)


def settings_of(page):
    """The settings of a page, from its source, without running it."""
    source = (PAGES / f"{page}.py").read_text(encoding="utf-8")
    source = source.replace("common.through_router()", "").removesuffix("\nmain()\n")
    scope = {"__name__": page}
    exec(compile(source, page, "exec"), scope)  # noqa: S102
    return {setting.key: setting for setting in scope["SETTINGS"]}


@pytest.mark.parametrize("page", sorted({statement.page for statement in statements()}))
def test_links_open_pages_with_settings_these_accept(page):
    assert f"{page}.py" in {name for name, *_ in common.PAGES}
    settings = settings_of(page)
    for statement in statements():
        for key, value in statement.link.items() if statement.page == page else ():
            settings[key].check(value)
            assert isinstance(value, str)


def test_every_check_is_used_and_named():
    used = {evidence.check for statement in statements() for evidence in statement.evidence}
    assert used == set(CHECKS)
    assert {check.__name__ for check in DRAWN} == IS_DRAWN
    assert not set(EXACT) & set(DRAWN)
    assert all(check.__doc__ for check in CHECKS.values())


def test_drawn_numbers_repeat():
    assert two_by_two_share(1.6, draws=1000) == two_by_two_share(1.6, draws=1000)


def test_numbers_in_words():
    assert moment("variance", 64).text == "64, exact"
    assert Number(0.999998).text == "0.999998, exact"
    assert Number(13.74, 0.64).text == "13.74 ± 0.64"


def evidence_for(low, high):
    return Evidence("x", "moment", {"name": "mean", "d_k": 1}, 0.0, 1e-9, low, high)


def test_ranges_decide():
    evidence = evidence_for(0.9, 1.1)
    assert evidence.holds(Number(1.0))
    assert not evidence.holds(Number(1.2))
    assert evidence.is_decided(Number(1.0, 0.02))
    assert not evidence.is_decided(Number(1.0, 0.03))
    assert evidence.range_text == "from 0.9 to 1.1"
    assert evidence_for(-math.inf, 1).range_text == "at most 1"
    assert evidence_for(2, math.inf).range_text == "at least 2"
    assert evidence_for(0, 0).range_text == "exactly 0"


def test_a_statement_with_mixed_numbers_is_conditional():
    statement = dataclasses.replace(EVERY["overflow"], evidence=(evidence_for(0, 1), evidence_for(5, 6)))
    assert statement.verdict_of([Number(0.5), Number(5.5)]) == "true"
    assert statement.verdict_of([Number(0.5), Number(7.0)]) == "conditional"
    assert statement.verdict_of([Number(2.0), Number(7.0)]) == "false"


GOOD = """
[[claim]]
id = "x"
statement = "S."
source = "T"
verdict = "true"
explanation = "E."
page = "claims"
link = {}
[[claim.evidence]]
label = "l"
check = "moment"
arguments = { name = "mean", d_k = 4 }
expected = 0.0
asserts = [-1, 1]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"true"', '"maybe"', r"claims.toml, 'x': `verdict` must be one of true, conditional, false"),
        ('check = "moment"', 'check = "guess"', r"claims.toml, 'x': `check` must be one of moment"),
        ("asserts = [-1, 1]", "", r"claims.toml, 'x': 'asserts'"),
        ('page = "claims"', "", r"claims.toml, 'x': .*page"),
        ("[-1, 1]", "[-1]", r"claims.toml, 'x'"),
    ],
)
def test_a_broken_data_file_is_named(tmp_path, monkeypatch, old, new, message):
    file = tmp_path / "claims.toml"
    monkeypatch.setattr(claims, "DATA", file)
    file.write_text(GOOD, encoding="utf-8")
    assert [statement.id for statement in statements.__wrapped__()] == ["x"]
    file.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        statements.__wrapped__()
