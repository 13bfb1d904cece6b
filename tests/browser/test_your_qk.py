"""The page "Your q and k" in a real browser: upload, other pages and back, other visitors, Stop, clicks on the map."""

import io
import json
from pathlib import Path

import numpy as np

from tests.browser.conftest import open_page, settle
from tests.written_files import npz

EXAMPLE = "In all-MiniLM-L6-v2 the variance"


def heads(count: int = 3, tokens: int = 32, d_k: int = 16) -> bytes:
    q, k = np.random.default_rng(8).standard_normal((2, count, tokens, d_k)).astype(np.float16)
    return npz(q=q, k=k)


def put_in(page, *files: tuple[str, bytes], wait: bool = True) -> None:
    """Upload files as a visitor does."""
    chooser = page.locator('input[type="file"]')
    if not chooser.count() or not page.get_by_text("Shape (…, tokens, d_k)").is_visible():
        page.get_by_text("Put in q and k of your own model").click()
    chooser.first.set_input_files(
        [{"name": name, "mimeType": "application/octet-stream", "buffer": data} for name, data in files]
    )
    if wait:
        settle(page, first=1500)


def words(page) -> str:
    return page.locator('[data-testid="stMain"]').inner_text()


def visit(page, name: str) -> None:
    page.get_by_role("link", name=name).click()
    settle(page, first=800)


def test_a_file_survives_other_pages_is_nobody_elses_and_goes_with_the_session(browser, site: str) -> None:
    page = open_page(browser, f"{site}/your_qk")
    assert EXAMPLE in words(page)
    put_in(page, ("heads.npz", heads()))
    assert "In heads.npz the variance" in words(page)
    assert "'q' is named like q and 'k' like k" in words(page)
    page.get_by_text("Each token sees only those before it (causal)").click()
    settle(page)
    before = page.locator('[data-testid="stAlert"]').all_inner_texts()
    visit(page, "Softmax by hand")
    visit(page, "Your q and k")
    assert page.locator('[data-testid="stAlert"]').all_inner_texts() == before
    assert page.get_by_label("Each token sees only those before it (causal)").is_checked()
    other = open_page(browser, f"{site}/your_qk")
    assert EXAMPLE in words(other)
    assert "heads.npz" not in words(other)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="JSON").click()
    record = json.loads(Path(waiting.value.path()).read_text(encoding="utf-8"))
    assert [head["index"] for head in record["heads"]] == [[0], [1], [2]]
    assert record["masked"]
    page.reload()  # a new session: the file is gone with the old one
    settle(page, first=1500)
    assert EXAMPLE in words(page)
    assert "heads.npz" not in words(page)
    for visitor in (page, other):
        assert visitor.locator('[data-testid="stException"]').count() == 0
        visitor.context.close()


def test_a_bad_file_is_one_sentence_and_what_was_there_stays(browser, site: str) -> None:
    page = open_page(browser, f"{site}/your_qk")
    put_in(page, ("bad.npz", b"no archive at all"))
    errors = page.locator('[data-testid="stAlertContentError"]')
    assert errors.count() == 1
    assert "'bad.npz': must start as a .npz file does; received b'no archive" in errors.inner_text()
    assert EXAMPLE in words(page)
    put_in(page, ("large.npy", b"0" * 20_971_521))
    assert "large.npy" in words(page)
    assert "20.0MB or smaller" in words(page)
    assert EXAMPLE in words(page)
    assert page.locator('[data-testid="stException"]').count() == 0
    page.context.close()


def test_measuring_many_heads_can_be_stopped_and_run_again(browser, site: str) -> None:
    file = io.BytesIO()
    q = np.random.default_rng(0).integers(-2, 3, (30, 1024, 16)).astype(np.int8)
    np.savez_compressed(file, q=q, k=q[::-1])
    page = open_page(browser, f"{site}/your_qk")
    put_in(page, ("many.npz", file.getvalue()), wait=False)
    stop = page.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop")
    stop.wait_for(timeout=30_000)
    stop.click()
    settle(page, first=800)
    assert page.get_by_text("Measuring 30 heads: stopped.").count() == 1
    assert page.get_by_role("button", name="Run it").count() == 1
    put_in(page, ("few.npz", heads(2)))
    assert "In few.npz the variance" in words(page)
    assert page.locator('[data-testid="stException"]').count() == 0
    page.context.close()


def test_a_click_on_the_map_chooses_a_head_and_the_address_tells_it(browser, site: str) -> None:
    page = open_page(browser, f"{site}/your_qk?head=5%2C+9&quantity=entropy")
    assert "One head: 5, 9" in words(page)
    cells = page.locator('[data-testid="stVegaLiteChart"]').first.locator(".mark-rect path")
    for place, head in ((2, "0, 2"), (20, "1, 8")):
        cells.nth(place).click(force=True)
        settle(page, first=800)
        assert f"One head: {head}" in words(page)
        assert f"head={head.replace(', ', '%2C+')}" in page.url or f"head={head.replace(', ', ',+')}" in page.url
    visit(page, "Method")
    visit(page, "Your q and k")
    assert "One head: 1, 8" in words(page)
    page.context.close()
