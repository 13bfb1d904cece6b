"""The dashboard in a real browser: every page, desktop and phone, light and dark; stop, links, downloads."""

import csv
import re
from pathlib import Path

import pytest

from tests.browser.conftest import PICTURES, open_page, settle

PAGES = {
    "dot_products": "/",
    "gradient_decay": "/gradient_decay",
    "other_scalings": "/other_scalings",
    "softmax_by_hand": "/softmax_by_hand",
    "claims": "/claims",
    "your_qk": "/your_qk",
    "method": "/method",
}

CONTRAST = """() => {
  const light = (c) => { const v = c / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const luminance = (rgb) => 0.2126 * light(rgb[0]) + 0.7152 * light(rgb[1]) + 0.0722 * light(rgb[2]);
  const read = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const back = luminance(read(getComputedStyle(document.querySelector('[data-testid="stApp"]')).backgroundColor));
  const probe = document.createElement('span'); document.querySelector('[data-testid="stApp"]').append(probe);
  const worst = [];
  for (const label of document.querySelectorAll('[data-testid="stVegaLiteChart"] svg .role-axis text')) {
    probe.style.color = label.getAttribute('fill') || 'black';
    const front = luminance(read(getComputedStyle(probe).color));
    worst.push((Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05));
  }
  return worst.length ? Math.min(...worst) : 21;
}"""

BACK = """(([r, g, b]) => (r + g + b) / 765)(getComputedStyle(document.querySelector('[data-testid="stApp"]'))
  .backgroundColor.match(/[\\d.]+/g).map(Number))"""


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", PAGES)
def test_page_is_whole_in_light_and_dark(browser, site: str, name: str, phone: bool) -> None:
    # the phone opens in the dark and sees the sun rise, the desktop the other way round
    page = open_page(browser, site + PAGES[name], phone=phone, dark=phone)
    assert page.locator('[data-testid="stException"]').count() == 0
    assert page.locator("h1").count() == 1
    too_wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert too_wide <= 0, "the page scrolls sideways"
    for chart in page.locator('[data-testid="stVegaLiteChart"]').all():
        assert len(chart.get_attribute("aria-label") or "") > 40, "a chart without words"
    assert page.locator(".katex-error").count() == 0
    height = page.evaluate("document.querySelector('[data-testid=\"stMain\"]').scrollHeight")
    page.set_viewport_size({"width": 390 if phone else 1280, "height": min(height, 8000)})
    PICTURES.mkdir(exist_ok=True)
    for dark in (phone, not phone):
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.wait_for_function(f"() => ({BACK}) {'<' if dark else '>'} 0.5")
        settle(page)
        assert page.evaluate(CONTRAST) >= 4.5, "chart labels too faint"
        kind = f"{'phone' if phone else 'desktop'}-{'dark' if dark else 'light'}"
        page.screenshot(path=PICTURES / f"{name}-{kind}.png")
    page.context.close()


def test_deep_link_on_a_fresh_server_finds_its_page(browser, fresh_site: str) -> None:
    page = open_page(browser, f"{fresh_site}/softmax_by_hand?logits=1,1,2")
    assert page.locator('[data-testid="stSidebarNavLink"]').all_inner_texts()[0].strip().endswith("Dot products")
    assert page.locator("h1").inner_text() == "Softmax by hand"
    assert page.get_by_text("0.576117").count() >= 1
    page.context.close()


def test_settings_live_in_the_address_and_survive_a_change_of_page(browser, site: str) -> None:
    page = open_page(browser, f"{site}/?d_k=16&samples=20000&seed=7")
    assert "d_k=16" in page.url
    page.get_by_role("link", name="Softmax by hand").click()
    settle(page, first=800)
    page.get_by_role("link", name="Dot products").click()
    settle(page, first=800)
    assert page.get_by_role("spinbutton", name="Head dimension d_k").input_value() == "16"
    assert {"d_k=16", "seed=7"} <= set(page.url.split("?")[1].split("&"))
    page.context.close()


def test_visitors_do_not_share_settings(browser, site: str) -> None:
    first = open_page(browser, f"{site}/?d_k=16&samples=20000")
    second = open_page(browser, f"{site}/?samples=20000")
    assert second.get_by_role("spinbutton", name="Head dimension d_k").input_value() == "64"
    first.context.close()
    second.context.close()


def test_a_long_run_can_be_stopped_and_run_again(browser, site: str) -> None:
    page = open_page(browser, f"{site}/?samples=1000")
    field = page.get_by_role("spinbutton", name="Pairs (q, k) to draw")
    field.fill("5000000")
    field.press("Enter")
    stop = page.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop")
    stop.wait_for(timeout=10_000)
    stop.click()
    settle(page, first=800)
    assert page.get_by_text("stopped").count() == 1
    assert page.get_by_role("button", name="Run it").count() == 1
    assert page.locator('[data-testid="stException"]').count() == 0
    page.context.close()


def test_download_holds_what_the_screen_shows(browser, site: str) -> None:
    page = open_page(browser, f"{site}/?samples=20000&seed=3")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV", exact=True).click()
    with Path(waiting.value.path()).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    variance = next(row for row in rows if (row["quantity"], row["statistic"]) == ("before", "variance"))
    shown = page.locator('[data-testid="stAlert"]').first.inner_text()
    assert f"{float(variance['estimate']):.2f}" in shown
    assert variance["seed"] == "3"
    page.context.close()


def test_bad_link_is_named(browser, site: str) -> None:
    page = open_page(browser, f"{site}/?d_k=hello&samples=20000")
    assert re.search(r"d_k.* in the link must be a whole number", page.locator("body").inner_text())
    assert "hello" not in page.url
    page.context.close()


def test_a_claim_opens_its_page_with_exactly_its_settings(browser, site: str) -> None:
    page = open_page(browser, f"{site}/other_scalings?rho=0.9&n=4&show=trace")
    page.get_by_role("link", name="Claims", exact=True).click()
    settle(page, first=800)
    page.get_by_role("textbox", name="Find").fill("letting the library scale again")
    page.get_by_role("textbox", name="Find").press("Enter")
    settle(page, first=800)
    page.get_by_role("button", name="See it").click()
    settle(page, first=1500)
    assert page.locator("h1").inner_text() == "Could it be another value?"
    assert page.get_by_text("Scaled twice").count() == 1
    parameters = set(page.url.split("?")[1].split("&"))
    assert "way=t5" in parameters
    assert not {"rho=0.9", "n=4", "show=trace"} & parameters
    page.context.close()
