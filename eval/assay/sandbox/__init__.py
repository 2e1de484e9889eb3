"""The sandbox: the container image in which the evaluator's programs run, and its stand-in on the host.

Each evaluator has its own. What goes in is pinned in `runtime/`, and what came out is recorded in
`.assay/sandbox/`. An image holds the evaluator's PEP 723 programs with their environments ready, so that a
container needs no network at all.
"""

from assay.sandbox.build import build
from assay.sandbox.check import check
from assay.sandbox.engine import DockerEngine, engine
from assay.sandbox.host import prepare_host
from assay.sandbox.pins import write_pins
from assay.sandbox.record import SandboxImage

__all__ = ["DockerEngine", "SandboxImage", "build", "check", "engine", "prepare_host", "write_pins"]
