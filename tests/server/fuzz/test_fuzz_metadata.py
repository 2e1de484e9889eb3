"""Hostile metadata behind a whole header: what Python makes of it is served, or refused in plain words."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.errors import ApiError, StartError
from server.loading import ModelOptions, load
from server.metrics import Metrics
from server.template import ChatTemplate
from tests.server.fuzz.header import ARRAY, F32, NAMES, STRING, Entry, Header, array, edited, text
from tests.server.fuzz.spoken import entry, spoken

pytestmark = pytest.mark.slow

WHOLE = spoken()
IDS = st.one_of(st.integers(0, 300), st.sampled_from([2**31 - 1, 2**32 - 1]))
TOKENS = [f"t{number}" for number in range(259)]


def opened(header: Header, folder: Path) -> str | None:
    """Load a file as the server does; the refusal, or None when it was served."""
    path = folder / "model.gguf"
    path.write_bytes(header.encode())
    try:
        loaded = load(ModelOptions(path, "hostile", threads=1, slots=1), Metrics())
    except StartError as error:
        refusal = error
    else:
        loaded.close()
        return None
    said = str(refusal).replace(str(folder), "")
    assert refusal.exit_code in (2, 3)
    assert all((refusal.what, refusal.why, refusal.next_command))
    assert said.replace("\n", "").isprintable()
    assert len(said) < 1000
    return said


def test_the_whole_file_is_served(tmp_path: Path) -> None:
    assert opened(WHOLE, tmp_path) is None


@st.composite
def spoilt(draw: st.DrawFn) -> Header:
    """The whole file with tokenizer entries that contradict it or each other."""
    lists = st.lists(
        st.one_of(NAMES, st.sampled_from(TOKENS).map(str.encode), st.binary(max_size=6)), max_size=6
    )
    changes = st.one_of(
        st.tuples(st.sampled_from(["eos_token_id", "bos_token_id", "eot_token_id", "unknown_token_id"]), IDS),
        st.tuples(st.sampled_from(["tokens", "merges"]), lists),
        st.tuples(
            st.just("merges"),
            st.lists(st.sampled_from(["a b", "a", "", "Ġ t", "a b c", " ", "zz q"]), max_size=9),
        ),
        st.tuples(st.just("token_type"), st.lists(st.integers(-1, 9), max_size=300)),
        st.tuples(st.just("token_type"), st.lists(st.integers(-1, 9), min_size=259, max_size=259)),
        st.tuples(st.just("tokens"), st.lists(st.sampled_from(TOKENS), min_size=259, max_size=259)),
        st.tuples(st.just("tokens"), st.permutations(TOKENS)),
        st.tuples(st.sampled_from(["model", "pre"]), st.text(max_size=8)),
    ).map(lambda pair: entry(f"tokenizer.ggml.{pair[0]}", pair[1]))
    templates = st.one_of(
        st.text(alphabet="{}%# abfori nendif'|()[].~\n", max_size=60),
        st.sampled_from(
            ["{% include 'x' %}", "{{ [].__class__.__base__ }}", "{" * 5000, "{{ 9 ** (9 ** 9) }}"]
        ),
        st.integers(1, 400).map(lambda depth: "{% if a %}" * depth + "{% endif %}" * depth),
        st.integers(1, 4000).map(lambda depth: "{{" + "(" * depth + ")" * depth + "}}"),
    ).map(lambda source: entry("tokenizer.chat_template", source))
    return WHOLE.with_entries(*draw(st.lists(st.one_of(changes, templates), min_size=1, max_size=3)))


@pytest.mark.parametrize("examples", [150, pytest.param(3000, marks=pytest.mark.long)])
@pytest.mark.parametrize("files", [spoilt(), edited(WHOLE)], ids=["spoilt", "edited"])
def test_hostile_metadata_is_refused_in_plain_words(
    files: st.SearchStrategy[Header], examples: int, tmp_path: Path
) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(files)
    def one(header: Header) -> None:
        opened(header, tmp_path)

    one()


@pytest.mark.parametrize(
    ("why", "new"),
    [
        ("merge", entry("tokenizer.ggml.merges", ["zz q"])),
        ("merge", entry("tokenizer.ggml.merges", ["a"])),
        ("token_type", Entry(b"tokenizer.ggml.token_type", ARRAY, array(F32, [struct.pack("<f", 1)] * 259))),
        ("token_type", Entry(b"tokenizer.ggml.token_type", ARRAY, array(STRING, [text("x")] * 259))),
        ("stands twice", entry("tokenizer.ggml.tokens", ["a"] * 259)),
        ("tokens", Entry(b"tokenizer.ggml.tokens", ARRAY, array(F32, [struct.pack("<f", 1)] * 259))),
        ("eos_token_id", entry("tokenizer.ggml.eos_token_id", 259)),
        ("bos_token_id", entry("tokenizer.ggml.bos_token_id", "x")),
        ("chat template", entry("tokenizer.chat_template", "{% if %}")),
        ("chat template", entry("tokenizer.chat_template", "{{" + "(" * 9000 + ")" * 9000 + "}}")),
        ("chat_template", entry("tokenizer.chat_template", 7)),
        ("not UTF-8", entry("tokenizer.ggml.pre", b"\xff\xfe")),
    ],
)
def test_a_contradiction_is_named(tmp_path: Path, why: str, new: Entry) -> None:
    assert why in str(opened(WHOLE.with_entries(new), tmp_path))


@pytest.mark.parametrize(
    "source",
    [
        "{{ 9 ** (9 ** 9) }}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ 10 ** 9 * 'x' }}",
        "{{ [0] * 2 ** 40 }}",
        "{{ m | dictsort }}",
    ],
)
def test_a_template_that_would_fill_the_memory_loads_and_refuses(source: str) -> None:
    template = ChatTemplate(source, (), {})
    with pytest.raises(ApiError) as caught:
        template.render([], {"m": [1]})
    assert caught.value.status == 400


def test_a_templates_small_arithmetic_is_jinjas() -> None:
    template = ChatTemplate("{{ 2 ** 10 }} {{ '-' * 3 }} {{ 1.5 * 2 }} {{ 2 ** -1 }}", (), {})
    assert template.render([], {}).text == "1024 --- 3.0 0.5"
