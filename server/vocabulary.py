"""The tokenizer's lists in a model's metadata, held against each other before anything is built on them.

The file is data from anywhere: a list of another type, a token that stands twice, a merge of what is no
token or an end token past the last id would be a crash of a library, or silently a worse model, much later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from server.errors import MISSING_DEPENDENCY, StartError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
MOST_SHOWN = 80  # characters of a name in a message
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair: JSON may hold it, UTF-8 may not


def unsupported(why: str) -> StartError:
    """Return the refusal of a tokenizer that cannot be rebuilt."""
    return StartError(
        "the model's tokenizer cannot be rebuilt",
        why,
        "use a model with a GPT-2 BPE tokenizer and a pre-tokenizer of the Qwen or SmolLM families",
        MISSING_DEPENDENCY,
    )


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value from the file is text that UTF-8 can hold."""
    return isinstance(value, str) and _HALF.search(value) is None


def shown(value: object) -> str:
    """Return a value from the file as a message can hold it: printable, and no longer than a line."""
    text = ascii(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the metadata says of the tokens, without contradictions."""

    tokens: tuple[str, ...]  # spellings by id, each once
    types: tuple[int, ...]  # of each token, NORMAL to UNUSED
    split: str  # the pre-tokenizer's name
    merges: tuple[tuple[str, str], ...]  # in the order of their rank; both halves and the whole are tokens
    begin: int | None
    add_begin: bool  # a prompt begins with `begin`
    ends: tuple[int, ...]  # named as end tokens, without those of the chat formats


def read_vocabulary(metadata: Mapping[str, object]) -> Vocabulary:
    """Return the checked lists of `tokenizer.ggml.*`; StartError names what contradicts what."""
    kind, split = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2":
        raise unsupported(f"its kind is {shown(kind)}; only 'gpt2' is supported")
    if not isinstance(split, str):
        raise unsupported(f"its pre-tokenizer is {shown(split)}, which is no text")
    tokens = tuple(_texts(metadata, "tokens"))
    types = tuple(_integers(metadata, "token_type"))
    if len(tokens) != len(types):
        raise unsupported(f"{len(tokens)} tokens but {len(types)} token types")
    _check_tokens(tokens, types)
    begin = _token_id(metadata, "bos_token_id", len(tokens))
    ends = [_token_id(metadata, key, len(tokens)) for key in END_KEYS]
    ends += _end_list(metadata, len(tokens))
    return Vocabulary(
        tokens,
        types,
        split,
        tuple(_merges(metadata, frozenset(tokens))),
        begin,
        metadata.get("tokenizer.ggml.add_bos_token") is True and begin is not None,
        tuple(end for end in ends if end is not None),
    )


def _list(metadata: Mapping[str, object], name: str) -> Sequence[object]:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise unsupported(f"the metadata has no list `tokenizer.ggml.{name}`")
    return value


def _texts(metadata: Mapping[str, object], name: str) -> Iterator[str]:
    for item in _list(metadata, name):
        if not is_text(item):
            raise unsupported(f"`tokenizer.ggml.{name}` holds {shown(item)}, which is no text")
        yield item


def _integers(metadata: Mapping[str, object], name: str) -> Iterator[int]:
    for item in _list(metadata, name):
        if not isinstance(item, int) or isinstance(item, bool):
            raise unsupported(f"`tokenizer.ggml.{name}` holds {shown(item)}, which is no whole number")
        yield item


def _check_tokens(tokens: Sequence[str], types: Sequence[int]) -> None:
    seen: set[str] = set()
    for token, (name, kind) in enumerate(zip(tokens, types, strict=True)):
        if not name:
            raise unsupported(f"the token {token} has no spelling")
        if name in seen:
            raise unsupported(f"the token {shown(name)} stands twice")
        if not NORMAL <= kind <= UNUSED:
            raise unsupported(f"the token {shown(name)} is of the type {kind}, not {NORMAL} to {UNUSED}")
        seen.add(name)


def _merges(metadata: Mapping[str, object], tokens: frozenset[str]) -> Iterator[tuple[str, str]]:
    for merge in _texts(metadata, "merges"):
        left, _, right = merge.partition(" ")
        for part in (left, right, left + right):
            if part not in tokens:
                raise unsupported(
                    f"the merge {shown(merge)} needs the token {shown(part)}, which there is not"
                )
        yield left, right


def _end_list(metadata: Mapping[str, object], size: int) -> list[int]:
    """Return the end tokens of a directory's generation_config.json; a GGUF file has no such list."""
    if "tokenizer.ggml.end_token_ids" not in metadata:
        return []
    ends = list(_integers(metadata, "end_token_ids"))
    for end in ends:
        if not 0 <= end < size:
            raise unsupported(f"the end token {end} is no id of its {size} tokens")
    return ends


def _token_id(metadata: Mapping[str, object], name: str, size: int) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
        raise unsupported(f"`tokenizer.ggml.{name}` is {shown(value)}, no id of its {size} tokens")
    return value
