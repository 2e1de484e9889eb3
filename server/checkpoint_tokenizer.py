"""The tokenizer and chat template of a model's directory, in the words that a GGUF file has for them.

Contract: :func:`read_tokenizer` makes `tokenizer.*` metadata of `tokenizer.json` (Hugging Face's
`tokenizers`), `tokenizer_config.json`, `generation_config.json` and `chat_template.jinja`; from there on
a directory is like a file. It is a byte-level BPE tokenizer, with a split that is known, or an error that
names what it is instead. Ids that no token has, as a model's padded table has them, are tokens that
nothing is ever encoded to.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from server.fields import Fields
from server.safetensors import CheckpointError, read_json
from server.splits import recognise
from server.vocabulary import CONTROL, NORMAL, UNUSED, USER_DEFINED, shown, unsupported

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
GENERATION_CONFIG = "generation_config.json"
TEMPLATE = "chat_template.jinja"

_MOST_TEMPLATE_BYTES = 4 << 20
_LISTED = "default"  # of several named templates


def read_tokenizer(folder: Path, size: int) -> dict[str, object]:
    """Return the metadata of a tokenizer whose ids are those below `size`.

    Raises:
        CheckpointError: a file is not to be read, or says something that cannot be.
        StartError: the tokenizer is of a kind that is not served.
    """
    whole = Fields(read_json(folder / TOKENIZER), str(folder / TOKENIZER))
    settings = _optional(folder / TOKENIZER_CONFIG)
    names, types = _vocabulary(whole, size)
    ids = {name: token for token, name in enumerate(names)}
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": recognise(whole.values.get("pre_tokenizer"), whole.values.get("normalizer")),
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": list(_merges(whole)),
    }
    begins = _begin(whole)
    for key in ("bos_token", "eos_token"):
        name = _spelling(settings, key)
        if name is not None:
            if name not in ids:
                raise settings.wrong(key, "no token of the model")
            metadata[f"tokenizer.ggml.{key}_id"] = ids[name]
    if settings.flag("add_bos_token", begins is not None):
        begins = begins if begins is not None else _spelling(settings, "bos_token")
        if begins not in ids:
            raise settings.wrong("add_bos_token", f"but the first token is {shown(begins)}")
        metadata["tokenizer.ggml.bos_token_id"] = ids[begins]
        metadata["tokenizer.ggml.add_bos_token"] = True
    metadata["tokenizer.ggml.end_token_ids"] = _ends(_optional(folder / GENERATION_CONFIG))
    template = _template(folder, settings)
    if template is not None:
        metadata["tokenizer.chat_template"] = template
    return metadata


def _vocabulary(whole: Fields, size: int) -> tuple[list[str], list[int]]:
    model = whole.table("model")
    kind = model.text("type", "BPE")
    if kind != "BPE":
        raise unsupported(f"its kind is {shown(kind)}; only byte-level 'BPE' is supported")
    for name in ("byte_fallback", "ignore_merges"):
        model.must_be(name, False)
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        model.must_be(name, "")
    if model.has("dropout"):
        raise model.wrong("dropout", "and an encoding by chance is not served")
    if whole.table("decoder").values.get("type") != "ByteLevel":
        raise unsupported("its tokens are not spelt in the byte-level alphabet")
    names: dict[int, str] = {}
    types: dict[int, int] = {}

    def place(name: str, token: object, kind: int) -> None:
        if type(token) is not int or not 0 <= token < size:
            raise CheckpointError(
                f"{whole.where}: token {shown(name)} has the id {shown(token)}, not 0 to {size - 1}"
            )
        if names.setdefault(token, name) != name:
            raise CheckpointError(
                f"{whole.where}: {shown(name)} and {shown(names[token])} are both token {token}"
            )
        types[token] = kind

    for name, token in model.table("vocab").values.items():
        place(name, token, NORMAL)
    for item in whole.items("added_tokens"):
        if not isinstance(item, dict):
            raise CheckpointError(f"{whole.where}: an added token is {shown(item)}")
        added = Fields(item, f"{whole.where}: an added token")
        for name in ("single_word", "lstrip", "rstrip"):
            added.must_be(name, False)
        place(
            added.text("content"), item.get("id"), CONTROL if added.flag("special", False) else USER_DEFINED
        )
    return (
        [names.get(token, f"[PAD{token}]") for token in range(size)],
        [types.get(token, UNUSED) for token in range(size)],
    )


def _merges(whole: Fields) -> Iterator[str]:
    for item in whole.table("model").items("merges"):
        pair = item.split(" ") if isinstance(item, str) else item
        match pair:
            case [str(left), str(right)] if left and right and " " not in left + right:
                yield f"{left} {right}"
            case _:
                raise CheckpointError(f"{whole.where}: a merge is {shown(item)}")


def _begin(whole: Fields) -> str | None:
    """Return the token that a prompt begins with, as the post-processor says; it may add no other."""
    post = whole.table("post_processor")
    steps: list[object] = [post.values] if post.values else []
    if post.values.get("type") == "Sequence":
        steps = post.items("processors")
    begin = None
    for step in steps:
        match step:
            case {"type": "ByteLevel"}:
                continue
            case {"type": "TemplateProcessing", "single": [{"Sequence": _}]}:
                continue
            case {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": str(name)}}, {"Sequence": _}],
            }:
                begin = name
            case _:
                raise CheckpointError(f"{whole.where}: what is added to a prompt is {shown(step)}")
    return begin


def _ends(generation: Fields) -> list[int]:
    """Return the tokens that end an answer, as generation_config.json lists them."""
    given = generation.values.get("eos_token_id")
    ends = given if isinstance(given, list) else [] if given is None else [given]
    if not all(type(end) is int for end in ends):
        raise generation.wrong("eos_token_id", "no id and no list of ids")
    return list(ends)


def _template(folder: Path, settings: Fields) -> str | None:
    path = folder / TEMPLATE
    if path.exists():
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise CheckpointError(f"{path} is not a regular file")
            with path.open("rb") as file:
                data = file.read(_MOST_TEMPLATE_BYTES + 1)
            if len(data) > _MOST_TEMPLATE_BYTES:
                raise CheckpointError(f"{path} is larger than {_MOST_TEMPLATE_BYTES} bytes")
            return data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
    given = settings.values.get("chat_template")
    if isinstance(given, list):
        named = (item for item in given if isinstance(item, dict) and item.get("name") == _LISTED)
        given = next(named, {}).get("template")
    if given is not None and not isinstance(given, str):
        raise settings.wrong("chat_template", "no text")
    return given


def _spelling(settings: Fields, key: str) -> str | None:
    """Return a token that is given by its spelling, or by an object that holds it."""
    value = settings.values.get(key)
    if isinstance(value, Mapping):
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise settings.wrong(key, "no token")
    return value


def _optional(path: Path) -> Fields:
    return Fields(read_json(path) if path.exists() else {}, str(path))
