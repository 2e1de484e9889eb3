"""What every test of the gateway shares."""

from __future__ import annotations

import pytest

from assay.gateway import asking


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries that wait next to nothing: how long they wait is seen in the tests that do not use this."""
    monkeypatch.setattr(asking, "FIRST_WAIT_S", 0.01)
