"""A side with known speeds and faults, for the tests of what asks it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from bench.sides.protocol import serve


def measured(*, variant: str = "off", **_: object) -> Mapping[str, object]:
    if variant == "crash":
        print("the side says why", file=sys.stderr, flush=True)
        os._exit(3)
    if variant == "raise":
        raise ValueError("it does not want to")
    if variant == "hang":
        time.sleep(600)
    if variant == "spin":
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass
    print("noise on standard output")
    return {"seconds": {"on": 0.5, "ours": 0.25}.get(variant, 1.0)}


def busy(*, seconds: float) -> Mapping[str, object]:
    """Answer at once and go on computing in a thread."""
    import threading

    def spin() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    threading.Thread(target=spin, daemon=True).start()
    return {}


if __name__ == "__main__":
    serve({"prefill": measured, "decode": measured, "busy": busy})
