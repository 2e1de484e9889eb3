"""The Qwen families' operations on every backend of the CPU, against exact arithmetic."""

from __future__ import annotations

import pytest

from tests.server.engine import hybrid_golden as golden
from tests.server.engine.hybrid_operations import HybridOperations

globals().update({name: test for name, test in vars(golden).items() if name.startswith("test_")})


@pytest.fixture
def hybrid(isa: str) -> HybridOperations:
    return HybridOperations(isa)
