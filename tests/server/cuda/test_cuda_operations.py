"""Every CUDA operation, run on the processor, against the same exact arithmetic as the CPU's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.cuda.conftest import ISA
from tests.server.engine import test_engine_operations as golden
from tests.server.engine.operations import Operations

globals().update({name: test for name, test in vars(golden).items() if name.startswith("test_")})


@pytest.fixture
def operations(emulated: Path) -> Operations:
    return Operations(ISA, emulated)
