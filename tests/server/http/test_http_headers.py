"""What headers make impossible is told before weights are read: of a large model that takes minutes."""

from __future__ import annotations

import json
import math
import os
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.launched import launched
from server import __main__ as command
from server import abi, identity
from server.engine import Engine, EngineError
from server.errors import StartError
from server.guesser import Speculation
from server.hollow_model import write
from server.inspection import EngineOptions, inspect
from server.loading import ModelOptions, load
from server.metrics import Metrics
from server.model_shape import SHAPES
from server.random_model import RandomModel
from tests.server.engine import tiny_tokenizer
from tests.server.engine.tiny import TinyModel
from tests.server.engine.tiny_checkpoint import TinyCheckpoint
from tests.server.engine.tiny_qwen import TinyQwen35
from tests.server.fuzz.header import ARRAY, F32, Entry, Header, array, parse
from tests.server.fuzz.spoken import entry, spoken
from tests.server.http.toy import VOCABULARY

CONTEXT = 256  # of the spoken model
NAN = Entry(b"tokenizer.ggml.scores", ARRAY, array(F32, [struct.pack("<f", math.nan)]))


class WeightsReadError(Exception):
    """Weights were about to be read."""


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no engine is opened and no file hashed."""

    def refuse(*_: object) -> None:
        raise WeightsReadError

    monkeypatch.setattr(abi.Library, "open", refuse)
    monkeypatch.setattr(identity, "file_sha256", refuse)


@pytest.fixture(scope="module")
def whole() -> Header:
    return spoken()


def told(path: Path, speculate: Path | None = None, **options: Any) -> StartError:
    """What loading is refused with."""
    asked = None if speculate is None else Speculation(str(speculate))
    wanted = ModelOptions(path, "m", threads=1, slots=1, kept_slots=0, speculation=asked)
    with pytest.raises(StartError) as caught:
        load(replace(wanted, **options), Metrics())
    assert all((caught.value.what, caught.value.why, caught.value.next_command))
    return caught.value


def saved(header: Header, path: Path) -> Path:
    path.write_bytes(header.encode())
    return path


def folder(path: Path, change: Callable[[Path], object] = lambda _: None) -> Path:
    """A directory that is served, after a change."""
    made = tiny_tokenizer.write(TinyCheckpoint("F32", vocabulary=tiny_tokenizer.SIZE).write(path))
    change(made)
    return made


def edit(name: str, change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    """A change of one of a directory's JSON files."""

    def changed(path: Path) -> None:
        value = json.loads((path / name).read_text())
        change(value)
        (path / name).write_text(json.dumps(value))

    return changed


def test_with_nothing_against_it_a_model_comes_to_its_weights(
    whole: Header, tmp_path: Path, unread: None
) -> None:
    for path in (saved(whole, tmp_path / "m.gguf"), folder(tmp_path / "m")):
        for speculation in (None, Speculation(str(path))):
            with pytest.raises(WeightsReadError):
                load(ModelOptions(path, "m", threads=1, slots=1, speculation=speculation), Metrics())


@pytest.mark.parametrize(
    ("why", "entries"),
    [
        ("its kind is None", [entry("tokenizer.ggml.model", "")]),
        ("its kind is 'llama'", [entry("tokenizer.ggml.model", "llama")]),
        ("its pre-tokenizer is 'deepseek'", [entry("tokenizer.ggml.pre", "deepseek")]),
        ("no id of its 259 tokens", [entry("tokenizer.ggml.eos_token_id", 259)]),
        ("not UTF-8", [entry("tokenizer.ggml.pre", b"\xff")]),
        ("not finite", [NAN]),
        (
            f"its tokenizer has 2 tokens, its output {VOCABULARY}",
            [
                entry("tokenizer.ggml.tokens", ["a", "b"]),
                entry("tokenizer.ggml.token_type", [1, 1]),
                entry("tokenizer.ggml.eos_token_id", 0),
                entry("tokenizer.ggml.bos_token_id", 0),
            ],
        ),
        ("line 1: ", [entry("tokenizer.chat_template", "{% if %}")]),
        ("which is no text", [entry("tokenizer.chat_template", 7)]),
    ],
)
def test_of_a_file(why: str, entries: list[Entry], whole: Header, tmp_path: Path, unread: None) -> None:
    spoilt = whole.with_entries(*entries)
    if why == "its kind is None":
        gone = tuple(each for each in whole.entries if not each.key.startswith(b"tokenizer."))
        spoilt = Header(gone, whole.tensors, whole.data)
    error = told(saved(spoilt, tmp_path / "m.gguf"))
    assert (error.exit_code, why in error.why) == (3, True), error


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("tokenizer.json cannot be read", lambda path: (path / "tokenizer.json").unlink()),
        ("its kind is 'WordPiece'", edit("tokenizer.json", lambda t: t["model"].update(type="WordPiece"))),
        ("not 0 to 279", edit("tokenizer.json", lambda t: t["model"]["vocab"].update(much=280))),
        (
            "'\\ud800', which is no text",
            edit("tokenizer.json", lambda t: t["model"]["vocab"].update({"\ud800": 278})),
        ),
        (
            "no id and no list of ids",
            edit("generation_config.json", lambda g: g.update(eos_token_id="<|im_end|>")),
        ),
        ("no id of its 280 tokens", edit("generation_config.json", lambda g: g.update(eos_token_id=280))),
        ("no token of the model", edit("tokenizer_config.json", lambda c: c.update(eos_token="</s>"))),
        ("line 1: ", lambda path: (path / "chat_template.jinja").write_text("{% for %}")),
        (
            "which is no text",
            lambda path: (
                (path / "chat_template.jinja").unlink(),
                edit("tokenizer_config.json", lambda c: c.update(chat_template="\ud800"))(path),
            ),
        ),
        (
            "tokenizer_config.json is not a regular file",
            lambda path: (
                (path / "tokenizer_config.json").unlink(),
                (path / "tokenizer_config.json").mkdir(),
            ),
        ),
    ],
)
def test_of_a_directory(why: str, change: Callable[[Path], object], tmp_path: Path, unread: None) -> None:
    error = told(folder(tmp_path / "m", change))
    assert (error.exit_code, why in error.why) == (3, True), error


@pytest.mark.parametrize(
    ("code", "why", "options"),
    [
        (2, f"a context of {CONTEXT + 1}", {"context": CONTEXT + 1}),
        (2, "threads is 257", {"threads": 257}),
        (2, "at most 1024 slots", {"slots": 1025}),
        (2, f"{2**32} is no 32-bit number", {"context": 2**32}),
        (3, "no instruction set 'avx9'", {"isa": "avx9"}),
        (2, "this model has no head of its own", {"head": "q8_0"}),
    ],
)
def test_of_options(
    code: int, why: str, options: dict[str, object], whole: Header, tmp_path: Path, unread: None
) -> None:
    error = told(saved(whole, tmp_path / "m.gguf"), **options)
    assert (error.exit_code, why in error.why) == (code, True), error


def test_of_keys_and_values_in_no_whole_groups(whole: Header, tmp_path: Path, unread: None) -> None:
    TinyModel(heads=4, head_dim=24, vocabulary=VOCABULARY, ffn=32).write(tmp_path / "heads.gguf")
    odd = parse((tmp_path / "heads.gguf").read_bytes())
    speaking = [each for each in whole.entries if each.key.startswith(b"tokenizer.")]
    error = told(saved(odd.with_entries(*speaking), tmp_path / "m.gguf"), kv="q4")
    assert (error.exit_code, "heads of 24" in error.why) == (2, True), error


def small_file(path: Path, model: TinyModel | RandomModel) -> Path:
    model.write(path)
    return path


@pytest.mark.parametrize("kind", ["file", "directory"])
@pytest.mark.parametrize(
    ("why", "make"),
    [
        ("not the model's, token by token", lambda path: small_file(path, TinyModel())),
        ("not the model's, token by token", lambda path: small_file(path, TinyQwen35(vocabulary=280))),
        ("it has no tokenizer", lambda path: small_file(path, RandomModel())),
        (
            "not the model's, token by token",
            lambda path: folder(
                path, edit("tokenizer.json", lambda t: t["model"]["vocab"].update({"othere": 279}))
            ),
        ),
        ("tokenizer.json cannot be", lambda path: folder(path, lambda d: (d / "tokenizer.json").unlink())),
        ("ends inside", lambda path: folder(path, lambda d: (d / "model.safetensors").write_bytes(b"\2"))),
    ],
)
def test_of_a_small_model(
    kind: str, why: str, make: Callable[[Path], Path], whole: Header, tmp_path: Path, unread: None
) -> None:
    path = folder(tmp_path / "m") if kind == "directory" else saved(whole, tmp_path / "m.gguf")
    small = make(tmp_path / "small")
    error = told(path, small)
    assert (error.exit_code, why in error.why, str(small) in str(error)) == (3, True, True), error


@pytest.mark.parametrize(
    "options",
    [
        EngineOptions(threads=0),
        EngineOptions(slots=1025),
        EngineOptions(context=CONTEXT + 1),
        EngineOptions(context=-(2**31)),
        EngineOptions(isa="avx9"),
    ],
    ids=str,
)
def test_a_header_is_refused_in_the_words_of_opening(
    options: EngineOptions, whole: Header, tmp_path: Path
) -> None:
    path = saved(whole, tmp_path / "m.gguf")
    with pytest.raises(EngineError) as early:
        inspect(path, options)
    with pytest.raises(EngineError) as late:
        Engine(path, threads=options.threads, slots=options.slots, context=options.context, isa=options.isa)
    assert (type(early.value), str(early.value)) == (type(late.value), str(late.value))


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_header_says_what_the_engine_says(kind: str, whole: Header, tmp_path: Path) -> None:
    path = folder(tmp_path / "m") if kind == "directory" else saved(whole, tmp_path / "m.gguf")
    found = inspect(path, EngineOptions(threads=1))
    with Engine(path, threads=1) as engine:
        assert found.metadata == engine.metadata
        assert (found.vocabulary, found.context) == (engine.vocabulary, engine.context)


def test_a_file_that_becomes_another_one_meanwhile_is_not_served(
    whole: Header, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(whole, tmp_path / "m.gguf")
    opened = abi.Library.open

    def replaced(library: abi.Library, options: abi.Options, handle: abi.Handle) -> None:
        saved(whole.with_entries(entry("tokenizer.chat_template", "another")), path)
        opened(library, options, handle)

    monkeypatch.setattr(abi.Library, "open", replaced)
    error = told(path)
    assert (error.exit_code, "changed while" in error.what) == (3, True), error


def test_a_ready_file_that_could_not_be_written_in_the_end_is_refused_at_the_start(
    whole: Header,
    tmp_path: Path,
    unread: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [str(saved(whole, tmp_path / "m.gguf")), "--port=0", f"--ready-file={tmp_path / 'ready.json'}"]
    asked = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path and asked(path, mode))
    assert command.main(words) == 2
    assert "nothing may be written into its directory" in capsys.readouterr().err


def refused(folder: Path, *words: str | Path) -> tuple[int, str, int]:
    """Exit code, what was said and the largest number of resident bytes of the command with these words."""
    command = [sys.executable, "-m", "server", *map(str, words), "--port=0", "--slots=1", "--kept-slots=0"]
    with (folder / "said").open("wb") as said:
        taken = launched(command, said)
    return taken.code, (folder / "said").read_text(), taken.peak_bytes


def large(path: Path, form: str, template: str = tiny_tokenizer.TEMPLATE) -> Path:
    """A model of 8 billion weights that are not there."""
    write(SHAPES["llama-8b"], form, path)
    if path.is_dir():
        tiny_tokenizer.write(path)
        (path / "chat_template.jinja").write_text(template)
    return path


@pytest.mark.parametrize(
    ("form", "template", "words", "code", "why"),
    [
        ("q4_k_m", "", (), 3, "its kind is None"),
        ("w4a16", "{% endif %}", (), 3, "no Jinja template"),
        ("w4a16", tiny_tokenizer.TEMPLATE, ("--context=8193",), 2, "a context of 8193"),
        ("w4a16", tiny_tokenizer.TEMPLATE, ("--speculate",), 3, "its vocabulary is not the model's"),
    ],
    ids=["tokenizer", "template", "context", "vocabulary"],
)
def test_the_command_refuses_a_large_model_without_its_weights(
    form: str, template: str, words: Sequence[str], code: int, why: str, tmp_path: Path
) -> None:
    model = large(tmp_path / "large", form, template)
    size = sum(path.stat().st_size for path in ([model] if model.is_file() else model.iterdir()))
    beside = [folder(tmp_path / "small")] if words == ("--speculate",) else []
    ended, said, resident = refused(tmp_path, model, *words, *beside)
    assert (ended, why in said, "why:" in said, "next:" in said) == (code, True, True, True), said
    assert resident < size / 4, "none of it was read"
