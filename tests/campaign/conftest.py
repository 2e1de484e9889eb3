"""The checkout that every test of a campaign begins with."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_site import Toy, make


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """A campaign of two steps, each with a server of its own."""
    return make(tmp_path / "checkout")
