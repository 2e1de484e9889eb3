"""A key of a test's own, runs that it signed, and statements that it signs as an operator would who lies."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.digest import canonical_json
from assay.signing.dsse import PAYLOAD_TYPE, pae
from assay.signing.key import SigningKey, load_signing_key, make_key

STATEMENT = "statement.dsse.json"


def key_in(folder: Path, name: str = "key") -> tuple[Path, Path]:
    """A new key's two files."""
    private, public, _ = make_key(folder, name, None)
    return private, public


def envelope(run: Path) -> dict[str, Any]:
    """A run's envelope as it stands."""
    value = json.loads((run / STATEMENT).read_text("utf-8"))
    assert isinstance(value, dict)
    return value


def statement(run: Path) -> dict[str, Any]:
    """What a run's envelope says."""
    value = json.loads(base64.b64decode(envelope(run)["payload"]))
    assert isinstance(value, dict)
    return value


def write(run: Path, payload: bytes, key: SigningKey, payload_type: str = PAYLOAD_TYPE) -> None:
    """An envelope with these bytes, well signed by the key."""
    value = {
        "payload": base64.b64encode(payload).decode("ascii"),
        "payloadType": payload_type,
        "signatures": [
            {
                "keyid": key.public.key_id,
                "sig": base64.b64encode(key.sign(pae(payload_type, payload))).decode("ascii"),
            }
        ],
    }
    (run / STATEMENT).write_text(json.dumps(value, indent=2) + "\n", "ascii")


def sign_again(
    run: Path, private: Path, change: Callable[[dict[str, Any]], object] = lambda value: None
) -> None:
    """Sign another statement, with the manifest that stands there now, as the operator can."""
    value = statement(run)
    value["subject"][0]["digest"]["sha256"] = hashlib.sha256((run / "manifest.json").read_bytes()).hexdigest()
    change(value)
    write(run, canonical_json(value), load_signing_key(private))
