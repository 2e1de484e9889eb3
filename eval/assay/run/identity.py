"""Who a server is, as it can be told before and after each entry, and what of that must not change.

Three kinds of word, recorded apart: what an Assay server claims at `/identity`; what any other one tells at
`/v1/models`, `/props` and `/version`, which nobody verified; and the container that the engine of this
machine sees it in. Some of what servers tell changes from one asking to the next (vLLM makes up a new
`created` each time), so only what identifies a server is compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from assay.run.container import Search
from assay.run.key import Key

MODELS, PROPS, VERSION = "/v1/models", "/props", "/version"
# What tells of the moment and not of the model, in an item of /v1/models.
PASSING = frozenset({"created", "modified_at", "permission", "state", "status"})
# What identifies a llama.cpp server in its /props; the rest is defaults of requests and states of slots.
LASTING = (
    *("bos_token", "build_info", "chat_template", "eos_token", "modalities", "model_alias", "model_ftype"),
    *("model_path", "total_slots"),
)
REDACTED = "***"
SHOWN_CHARACTERS = 100
MOST_SHOWN = 8


@dataclass(frozen=True)
class Identity:
    """What is known of a server at one moment; no text in it holds the key.

    Attributes:
        claimed: The whole `/identity` document, None when the server offers none.
        models: The names `/v1/models` lists.
        told: What a server without an identity tells, by path: its item of `/v1/models`, `/props`,
            `/version`; None where it answers nothing that can be used.
        search: Its container.
    """

    claimed: Mapping[str, Any] | None
    models: tuple[str, ...]
    told: Mapping[str, Any]
    search: Search

    @property
    def fingerprint(self) -> str | None:
        """The `system_fingerprint` it claims."""
        value = (self.claimed or {}).get("system_fingerprint")
        return value if isinstance(value, str) else None

    def describe(self) -> dict[str, Any]:
        """What is recorded."""
        container = self.search.container
        return {
            "source": "claimed by the server" if self.claimed else "told by the server, unverified",
            "identity": self.claimed,
            "models": list(self.models),
            "unverified": dict(self.told),
            "container": None if container is None else container.model_dump(mode="json"),
            "container_search": self.search.said,
        }


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What changed between two records of a server, by name; empty when it is the same one."""
    old, new = dict(_facts(before)), dict(_facts(after))
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    told = [f"{name} was {_short(old.get(name))}, is {_short(new.get(name))}" for name in names[:MOST_SHOWN]]
    return told + ([f"and {len(names) - MOST_SHOWN} more"] if len(names) > MOST_SHOWN else [])


def _facts(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each thing that must not change, with a name."""
    yield from _leaves("identity", record.get("identity"))
    yield from _leaves("models", record.get("models"))
    yield from _leaves("container", record.get("container"))
    told = record.get("unverified")
    told = told if isinstance(told, Mapping) else {}
    for path in sorted(told):
        value = told[path]
        if isinstance(value, Mapping) and path == MODELS:
            value = {name: item for name, item in value.items() if name not in PASSING}
        elif isinstance(value, Mapping) and path == PROPS:
            defaults = value.get("default_generation_settings")
            context = defaults.get("n_ctx") if isinstance(defaults, Mapping) else None
            value = {**{name: value.get(name) for name in LASTING}, "n_ctx": context}
        yield from _leaves(path, value)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}", item)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(f"{name}[{index}]", item)
    else:
        yield name, value


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def redact(value: Any, key: Key | None) -> Any:
    """A JSON value whose texts and numbers do not hold the key, and can be written as UTF-8."""
    if isinstance(value, Mapping):
        return {redact(name, key): redact(item, key) for name, item in value.items()}
    if isinstance(value, list):
        return [redact(item, key) for item in value]
    if isinstance(value, str):
        text = value.encode("utf-8", "replace").decode("utf-8")
        return text if key is None else _without(text, key.reveal())
    if key is not None and isinstance(value, int | float) and not isinstance(value, bool):
        return REDACTED if key.reveal() in repr(value) else value
    return value


def _without(text: str, secret: str) -> str:
    for spelling in (secret, quote(secret, safe="")):
        text = text.replace(spelling, REDACTED)
    return text
