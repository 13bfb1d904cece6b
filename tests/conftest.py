"""What the tests share: the oracle, the seed of random runs, and Hypothesis without deadlines."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ORACLE = Path(__file__).parent / "data" / "reference.json"

# No timed assertions: a slow machine is no bug. The same examples every time, unless TEST_SEED asks for others.
settings.register_profile(
    "sqrt_dk", parent=settings.default, deadline=None, derandomize=not os.environ.get("TEST_SEED"), database=None
)
settings.load_profile("sqrt_dk")


@pytest.fixture(scope="session")
def reference() -> dict[str, Any]:
    """The oracle: values at many digits from sources independent of this package."""
    return json.loads(ORACLE.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def seed() -> int:
    """Seed of all random runs. TEST_SEED=1, 2, … repeats them with other numbers."""
    return int(os.environ.get("TEST_SEED", "0"))
