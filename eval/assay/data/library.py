"""What the hub's library is left of its environment; it reads that once, when it is imported.

Its `HF_ENDPOINT` says which hub, and `HF_TOKEN` (or its token file) opens gated repositories; the token is
found by the library and is neither printed nor recorded. Everything else that its environment could change is
taken away: its offline switches (a download that is asked for is meant), its caches (the user's stay
untouched; ours is written by `assay.data.partial`), Xet, telemetry and progress bars.
"""

from __future__ import annotations

import os
from pathlib import Path

KEPT = frozenset(
    {
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
    }
)
# How long the hub may be silent.
TIMEOUT_S = "30"
DROPPED = ("HF_", "HUGGINGFACE", "HUGGING_FACE", "TRANSFORMERS_OFFLINE")


def prepare(private: Path) -> None:
    """Set this process's environment up for the library; to be called before `assay.data.hub` is imported.

    Args:
        private: Where the library may keep what it keeps besides the token: nothing, as it is set up here.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    home = os.environ.get("HF_HOME") or str(Path(caches, "huggingface"))
    token = os.environ.get("HF_TOKEN_PATH") or str(Path(home, "token"))
    for name in list(os.environ):
        if name.startswith(DROPPED) and name not in KEPT:
            del os.environ[name]
    os.environ |= {
        "HF_HOME": str(private),
        "HF_TOKEN_PATH": token,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": TIMEOUT_S,
        "HF_HUB_ETAG_TIMEOUT": TIMEOUT_S,
    }
