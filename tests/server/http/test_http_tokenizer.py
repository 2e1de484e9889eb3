"""The tokenizer, held against llama.cpp's on the real model's metadata."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ik_llama_cpp._internals import IkModel

from server.engine import Engine
from server.errors import StartError
from server.tokenizer import Tokenizer
from tests.server.http import toy

HAND_PICKED = (
    *(
        "",
        " ",
        "\n",
        "  leading",
        "trailing  ",
        "a\n\n\nb",
        "   \n  \n x",
        "\t\tif x:\n\t\t\treturn 12345\r\n",
    ),
    *("12", "1,234.56 1e10 0xFF", "½ ² Ⅷ ٣ ५ 一二三 ㊿", "3.14159265358979", "v1.2.3-rc4"),
    *(
        "naïve café",
        "e\u0301",
        "Straße",
        "…“quotes”—dash",
        "日本語テキスト",
        "한국어",
        "مرحبا بالعالم",
        "हिन्दी",
        "ไทย",
    ),
    *(
        "👩‍👩‍👧‍👦 🇩🇪 ❤️",
        "\u00a0nbsp\u2003em\u3000",
        "\u2028\u2029",
        "\x85next",
        "\ufeffBOM",
        "\u200b zero",
        "\x00\x01\x7f",
    ),
    *("don't we'll I'M they'RE", "'s's'S", "I'd've"),
    *(
        "def f(x):\n    return x**2  # square\n",
        "for (int i=0;i<n;++i) { a[i] += b[i]; }",
        '{"a": [1, 2, null]}',
    ),
    *("<|im_end|>", "x<|im_start|>user\nhi<|im_end|>\n", " <|im_end|> ", "<|im_<|im_end|>end|>", "<|im_end|"),
    *("<file_sep><filename>a.py", "<|endoftext|><|endoftext|>", "<repo_name>x<reponame>y"),
    *("a" * 500, "ab " * 300, "http://example.org/a?b=c&d=%20#e"),
    # These hold bytes for which the vocabulary has no token: both drop them.
    *("th\x04e", "a\x13\x14b", "hello\U00040000x", "x\x1cy\x1dz\x1ew\x1fv"),
)

ALPHABETS = (
    "abc XYZ 0123\n\t'",
    "éüñ ßøÅ",
    "日本語中文 ",
    "😀👍🏽❤️",
    "()[]{}<>|=+-*/_.;:\"'\\`~!@#$%^& ",
    "\u0300\u0301\u0590\u0660\u06f1\u0966\u0e50\u2070\u2160\u3007\u3000\u00a0\u2009\u200b\u1680\u202f\u205f ",
)
WORDS = ("the", "def", "1990", "isn't", "<|im_end|>", "<repo_name>", "\n", "  ", "x+=1;", "Straße", "2²")


def texts() -> list[str]:
    """The hand-picked texts and 600 made from a fixed seed."""
    random_ = random.Random(20)

    def made() -> str:
        count = random_.randint(1, 40)
        kind = random_.random()
        if kind < 0.4:
            return "".join(random_.choice(random_.choice(ALPHABETS)) for _ in range(count))
        if kind < 0.7:
            spans = ((0x20, 0x7E), (0x80, 0x2FFF), (0x3000, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x3FFFF))
            return "".join(chr(random_.randint(*random_.choice(spans))) for _ in range(count))
        return " ".join(random_.choice(WORDS) for _ in range(count))

    return [*HAND_PICKED, *(made() for _ in range(600))]


@pytest.fixture(scope="module")
def tokenizer(model_path: Path) -> Tokenizer:
    with Engine(model_path, slots=1, context=16) as engine:
        return Tokenizer(engine.metadata)


def test_ids_are_those_of_llama_cpp(tokenizer: Tokenizer, model_path: Path) -> None:
    model = IkModel(str(model_path))
    try:
        for text in texts():
            assert tokenizer.encode(text) == model.tokenize(text, add_bos=False, special=True), repr(text)
    finally:
        model.close()


def test_a_guarded_text_has_the_ids_that_llama_cpp_gives_without_control_tokens(
    tokenizer: Tokenizer, model_path: Path
) -> None:
    model = IkModel(str(model_path))
    names = re.compile("|".join(re.escape(name) for name in tokenizer.control_names))
    guard = "\ufdd0"
    try:
        for text in texts():
            if names.search(text) is None:
                continue
            broken = names.sub(lambda found: found[0][0] + guard + found[0][1:], text)
            assert tokenizer.encode(broken, guard) == model.tokenize(text, add_bos=False, special=False)
    finally:
        model.close()


def test_every_text_comes_back_exactly(tokenizer: Tokenizer) -> None:
    # Bytes that the model's vocabulary has no token for: four controls' ends and unassigned planes.
    missing = {
        byte for byte in range(256) if not any(tokenizer.token_bytes(t) == bytes([byte]) for t in range(1000))
    }
    for text in texts():
        if missing.isdisjoint(text.encode()):
            assert tokenizer.decode(tokenizer.encode(text), control=True) == text


@given(st.text())
def test_a_whole_byte_vocabulary_loses_nothing(text: str) -> None:
    small = Tokenizer(toy.metadata())
    assert small.decode(small.encode(text), control=True) == text


def test_control_tokens_add_nothing_to_an_answer(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("<|im_start|>a<|im_end|>")) == "a"


def test_a_begin_token_is_added_once_when_the_metadata_asks_for_it() -> None:
    tokenizer = Tokenizer({**toy.metadata(), "tokenizer.ggml.add_bos_token": True})
    assert tokenizer.encode("a") == [toy.START, *toy.ids(b"a")]
    assert tokenizer.encode("<|im_start|>a") == [toy.START, *toy.ids(b"a")]


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("tokenizer.ggml.pre", "llama-bpe", "llama-bpe"),
        ("tokenizer.ggml.model", "llama", "llama"),
        ("tokenizer.ggml.merges", None, "merges"),
        ("tokenizer.ggml.token_type", [1], "1 token types"),
    ],
)
def test_what_is_not_supported_is_named(key: str, value: object, named: str) -> None:
    with pytest.raises(StartError) as caught:
        Tokenizer({**toy.metadata(), key: value})
    assert named in str(caught.value)
    assert caught.value.exit_code == 3
