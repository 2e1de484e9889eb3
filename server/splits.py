"""How a text is cut before byte-pair encoding: the pre-tokenizers that are known, by GGUF's names for them.

A split is known by its parts and never taken from a file as it stands: a pattern from anywhere could take for
ever, and one that differs in a character is silently a worse model. `recognise` finds the name of what a
`tokenizer.json` describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from server.vocabulary import shown, unsupported

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"


@dataclass(frozen=True, slots=True)
class Split:
    """One way to cut a text: at `pattern`, or else with the byte-level library's own."""

    pattern: str | None = None
    digits: bool = False  # each digit alone, first
    composed: bool = False  # the text is put into Unicode's NFC before

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """Return what cuts the text and spells its bytes."""
        spelt = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.pattern is None)
        if self.pattern is not None:
            return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(self.pattern), "isolated"), spelt])
        if self.digits:
            return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), spelt])
        return spelt

    def normalizer(self) -> normalizers.Normalizer | None:
        """Return what the text goes through before it is cut."""
        return normalizers.NFC() if self.composed else None


SPLITS = {
    "gpt-2": Split(),
    "smollm": Split(digits=True),
    "qwen2": Split(
        rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        composed=True,
    ),
    "qwen35": Split(
        rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        composed=True,
    ),
}


def recognise(pre_tokenizer: object, normalizer: object) -> str:
    """Return the name of the split that a `tokenizer.json` describes; StartError when it is another."""
    pattern, digits = None, False
    for part in _parts(pre_tokenizer, "pretokenizers"):
        match part:
            case {"type": "Split", "pattern": {"Regex": str(found)}, "behavior": "Isolated", "invert": False}:
                pattern = found
            case {"type": "Digits", "individual_digits": True}:
                digits = True
            case {"type": "ByteLevel", "add_prefix_space": False}:
                if part.get("use_regex", True) is not (pattern is None):
                    raise unsupported("its pre-tokenizer cuts a text twice")
            case _:
                raise unsupported(f"its pre-tokenizer has the part {shown(part)}")
    composed = False
    for part in _parts(normalizer, "normalizers"):
        if part != {"type": "NFC"}:
            raise unsupported(f"its normalizer has the part {shown(part)}")
        composed = True
    wanted = Split(pattern, digits, composed)
    name = next((name for name, split in SPLITS.items() if split == wanted), None)
    if name is None:
        raise unsupported(f"its pre-tokenizer is none of {', '.join(SPLITS)}: {shown(wanted)}")
    return name


def _parts(value: object, name: str) -> list[Mapping[str, object]]:
    """Return a part's parts when it is a sequence, else the one; none of an absent one."""
    if value is None:
        return []
    if isinstance(value, dict) and value.get("type") == "Sequence":
        items = value.get(name)
        if not isinstance(items, list):
            raise unsupported(f"a sequence in it has no list `{name}`")
        return [part for item in items for part in _plain(item)]
    return _plain(value)


def _plain(value: object) -> list[Mapping[str, object]]:
    if not isinstance(value, dict):
        raise unsupported(f"a part of it is {shown(value)}")
    return [value]
