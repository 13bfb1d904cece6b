"""A real server and a real Chromium for the tests in this folder.

Without a browser they skip and say so; where CI is set, a skip is a failure.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = Path(__file__).parent / "pictures"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
READY = """() => {
  const app = document.querySelector('[data-testid="stApp"]');
  return app && app.getAttribute('data-test-script-state') === 'notRunning'
    && app.getAttribute('data-test-connection-state') === 'CONNECTED'
    && !document.querySelector('[data-testid="stSkeleton"],[data-testid="stAppSkeleton"]');
}"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def missing() -> str:
    """Return what is missing for a browser test, or nothing."""
    if CHROMIUM is None:
        return "no Chromium on this machine"
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return ""


@pytest.fixture(scope="session")
def browser() -> Iterator:
    if why := missing():
        if os.environ.get("CI"):
            pytest.fail(f"CI must run the browser tests: {why}")
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def start_server() -> tuple[subprocess.Popen, str]:
    """Start the dashboard on a free port and wait until it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "dashboard.py", "--server.headless=true"]
    server = subprocess.Popen(
        [*command, f"--server.port={port}", "--server.address=127.0.0.1"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=1):  # noqa: S310
                return server, address
        except OSError:
            time.sleep(0.1)
    server.kill()
    raise RuntimeError("the dashboard did not start")


@pytest.fixture(scope="session")
def site(browser: object) -> Iterator[str]:  # noqa: ARG001 - no browser, no server
    server, address = start_server()
    yield address
    server.terminate()
    server.wait(10)


@pytest.fixture
def fresh_site(browser: object) -> Iterator[str]:  # noqa: ARG001
    server, address = start_server()
    yield address
    server.terminate()
    server.wait(10)


def settle(page, *, first: int = 300) -> None:
    """Wait until the page has finished its run and its charts are drawn."""
    page.wait_for_timeout(first)
    page.wait_for_function(READY, timeout=120_000)
    charts = page.locator('[data-testid="stVegaLiteChart"]')
    for place in range(charts.count()):
        charts.nth(place).locator("svg").first.wait_for(timeout=20_000)
    page.wait_for_timeout(200)


def open_page(browser, address: str, *, phone: bool = False, dark: bool = False):
    """Open an address in a new visitor's window and wait until it is ready."""
    size = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 900}
    window = browser.new_context(viewport=size, color_scheme="dark" if dark else "light", accept_downloads=True)
    page = window.new_page()
    page.goto(address)
    settle(page, first=800)
    return page
