"""Text to token ids and back, rebuilt from a model's metadata.

Supported: GPT-2 byte-level BPE with one of the pre-tokenizers of server/splits.py; any other is an error that
names it, since a wrong split is silently a worse model.

Control tokens (type 3 in the metadata) are cut out here rather than registered as added tokens of the
library, because whether `<|im_end|>` in a text is the control token or ten ordinary characters depends on
who wrote it. `encode` takes both: a template's or a raw prompt's text is read with control tokens; a
character of `guard` inside a control token's name marks it as a user's words (see server/template.py).

Every normal token is a byte string, so decoding is concatenation and exact for any split of a character
over tokens; server/textstream.py makes text of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import models

from server.splits import SPLITS
from server.vocabulary import CONTROL, UNKNOWN, UNUSED, USER_DEFINED, read_vocabulary, shown, unsupported

# Names that end an answer in one chat format or another, beside the metadata's own end token: a model
# trained on several formats ends with any of them.
END_NAMES = frozenset(
    {
        "<|endoftext|>",
        "<|im_end|>",
        "<|end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "</s>",
    }
)


def byte_alphabet() -> dict[str, int]:
    """Return GPT-2's map of 256 printable characters to the bytes that they stand for."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + order): byte for order, byte in enumerate(shifted)})
    return alphabet


class Tokenizer:
    """A byte-level BPE tokenizer with explicit control tokens; safe to share between threads."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        """Rebuild the tokenizer from `tokenizer.ggml.*`; StartError names what is not supported."""
        given = read_vocabulary(metadata)
        names, types = given.tokens, given.types
        vocabulary = {name: token for token, name in enumerate(names)}
        self._bpe = LibraryTokenizer(models.BPE(vocab=vocabulary, merges=list(given.merges), fuse_unk=False))
        split = SPLITS.get(given.split)
        if split is None:
            raise unsupported(f"its pre-tokenizer is {shown(given.split)}; {', '.join(SPLITS)} are supported")
        self._bpe.pre_tokenizer = split.pre_tokenizer()
        normalizer = split.normalizer()
        if normalizer is not None:
            self._bpe.normalizer = normalizer
        alphabet = byte_alphabet()
        self._bytes = tuple(
            _token_bytes(name, kind, alphabet) for name, kind in zip(names, types, strict=True)
        )
        self._control = {
            name: token for name, token in vocabulary.items() if types[token] in (CONTROL, UNKNOWN)
        }
        self._always = {name: token for name, token in vocabulary.items() if types[token] == USER_DEFINED}
        self._names = names
        self._split_all = _splitter([*self._control, *self._always])
        self.size = len(names)
        self._begin, self._add_begin = given.begin, given.add_begin
        named = (token for name, token in self._control.items() if name in END_NAMES)
        self.ends = frozenset((*given.ends, *named))

    @property
    def control_names(self) -> Iterable[str]:
        """The names of the control tokens, which a user's text must not forge."""
        return self._control.keys()

    @property
    def control_ids(self) -> Iterable[int]:
        """The ids of the control tokens."""
        return self._control.values()

    def control_id(self, name: str) -> int | None:
        """Return the id of the control token of that name, if there is one."""
        return self._control.get(name)

    def single(self, text: str) -> int | None:
        """Return the one token that `text` is, if it is one."""
        found = self._control.get(text, self._always.get(text))
        if found is None:
            ids = self._bpe.encode(text, add_special_tokens=False).ids
            found = ids[0] if len(ids) == 1 else None
        return found

    def pieces(self, text: str) -> Iterable[str]:
        """Return `text` cut at the names of special tokens, which are pieces of their own."""
        return self._split_all.split(text)

    def encode(self, text: str, guard: str | None = None) -> list[int]:
        """Return the ids of `text`; control tokens' names become control tokens.

        Args:
            text: well-formed Unicode; lone surrogates are refused by the caller.
            guard: a character that is dropped before the text reaches the byte-pair encoder; a name
                that holds it is plain text.
        """
        ids: list[int] = []
        for piece in self._split_all.split(text):
            special = self._control.get(piece, self._always.get(piece))
            if special is not None:
                ids.append(special)
            elif piece:
                plain = piece.replace(guard, "") if guard else piece
                ids.extend(self._bpe.encode(plain, add_special_tokens=False).ids)
        if self._add_begin and self._begin is not None and ids[:1] != [self._begin]:
            ids.insert(0, self._begin)
        return ids

    def token_bytes(self, token: int) -> bytes:
        """Return what a token adds to an answer's text: control tokens add nothing."""
        return self._bytes[token]

    def spelling(self, token: int) -> bytes:
        """Return a token's bytes where it must be visible: a control token's name is spelt out."""
        return self._bytes[token] or self._names[token].encode()

    def decode(self, tokens: Iterable[int], *, control: bool = False) -> str:
        """Return the text of `tokens`; bytes that are no UTF-8 become U+FFFD.

        Args:
            tokens: ids below `size`.
            control: spell control tokens out by name.
        """
        spell = self.spelling if control else self.token_bytes
        return b"".join(spell(token) for token in tokens).decode("utf-8", "replace")


def _token_bytes(name: str, kind: int, alphabet: Mapping[str, int]) -> bytes:
    if kind in (CONTROL, UNKNOWN, UNUSED):
        return b""
    if kind == USER_DEFINED:
        return name.encode()
    try:
        return bytes(alphabet[character] for character in name)
    except KeyError as error:
        raise unsupported(f"the token {shown(name)} is not spelt in the byte-level alphabet") from error


def _splitter(names: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern whose `split` cuts the names out and keeps them; longer names win."""
    ordered = sorted(names, key=len, reverse=True)
    # Without a name the pattern must never match: a lookahead for what cannot follow.
    return re.compile("(" + "|".join(map(re.escape, ordered)) + ")" if ordered else r"((?!))")
