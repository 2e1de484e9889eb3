"""The Qwen families' operations on CUDA, run on the processor, against exact arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.cuda.conftest import ISA
from tests.server.engine import hybrid_golden as golden
from tests.server.engine.hybrid_operations import HybridOperations

pytestmark = pytest.mark.slow

globals().update({name: test for name, test in vars(golden).items() if name.startswith("test_")})


@pytest.fixture
def hybrid(emulated: Path) -> HybridOperations:
    return HybridOperations(ISA, emulated)
