"""A directory of safetensors files is served as a GGUF file is: its tokenizer, its template, its identity."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as LibraryTokenizer

from server.checkpoint_tokenizer import read_tokenizer
from server.errors import StartError
from server.identity import canonical, file_sha256
from server.loading import ModelOptions, load
from server.metrics import Metrics
from server.origin import Origin
from server.safetensors import CheckpointError
from server.tokenizer import Tokenizer
from tests.server.engine import tiny_tokenizer
from tests.server.engine.tiny_checkpoint import TinyCheckpoint
from tests.server.http.running import command_server

SPLITS = ("gpt-2", "smollm", "qwen2", "qwen35")
TEXTS = st.text(
    st.one_of(
        st.sampled_from("the and in 12 \t\n\r'sLL.,!?é\u0301ßक्ष日本語½👩\u200d👧\u00a0"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=60,
)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tokenizer, LibraryTokenizer]]:
    """Of each split our tokenizer and the library's, both of one directory."""
    found: dict[str, tuple[Tokenizer, LibraryTokenizer]] = {}
    for split in SPLITS:
        folder = tiny_tokenizer.write(tmp_path_factory.mktemp(split), split)
        ours = Tokenizer(read_tokenizer(folder, tiny_tokenizer.SIZE))
        found[split] = ours, tiny_tokenizer.build(split)
    return found


@pytest.mark.parametrize("split", SPLITS)
@given(text=TEXTS)
def test_a_text_has_the_ids_that_the_library_gives_it(
    pairs: dict[str, tuple[Tokenizer, LibraryTokenizer]], split: str, text: str
) -> None:
    ours, theirs = pairs[split]
    whole = f"<|im_start|>{text}<think>{text} 12the<|im_end|>"
    for each in (text, whole):
        assert ours.encode(each) == theirs.encode(each, add_special_tokens=False).ids


def test_what_a_directory_says_of_its_tokens_is_what_a_file_would(tmp_path: Path) -> None:
    metadata = read_tokenizer(tiny_tokenizer.write(tmp_path), tiny_tokenizer.SIZE)
    tokenizer, theirs = Tokenizer(metadata), tiny_tokenizer.build()
    assert tokenizer.size == tiny_tokenizer.SIZE
    assert set(tokenizer.control_names) == set(tiny_tokenizer.SPECIAL)
    assert tokenizer.ends == {theirs.token_to_id("<|im_end|>"), theirs.token_to_id("<|endoftext|>")}
    # A reader's mark is text that the model writes, a padded id is nothing at all.
    assert tokenizer.token_bytes(theirs.token_to_id("<think>")) == b"<think>"
    assert tokenizer.token_bytes(tiny_tokenizer.SIZE - 1) == b""
    assert metadata["tokenizer.chat_template"] == tiny_tokenizer.TEMPLATE


def changed(folder: Path, file: str, **fields: object) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    ("why", "file", "fields"),
    [
        ("its kind is 'Unigram'", "tokenizer.json", {"model": {"type": "Unigram"}}),
        ("its tokens are not spelt", "tokenizer.json", {"decoder": {"type": "Metaspace"}}),
        ("its normalizer has the part", "tokenizer.json", {"normalizer": {"type": "Lowercase"}}),
        (
            "its pre-tokenizer is none of",
            "tokenizer.json",
            {
                "pre_tokenizer": {
                    "type": "Split",
                    "pattern": {"Regex": "(a*)*b"},
                    "behavior": "Isolated",
                    "invert": False,
                }
            },
        ),
        ("its pre-tokenizer has the part", "tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}),
        ("what is added to a prompt is", "tokenizer.json", {"post_processor": {"type": "BertProcessing"}}),
        ("has the id -1", "tokenizer.json", {"added_tokens": [{"content": "x", "id": -1}]}),
        ("are both token 3", "tokenizer.json", {"added_tokens": [{"content": "twice", "id": 3}]}),
        (
            "`lstrip` is True",
            "tokenizer.json",
            {"added_tokens": [{"content": "x", "id": 279, "lstrip": True}]},
        ),
        ("`eos_token` is 'nothing'", "tokenizer_config.json", {"eos_token": "nothing"}),
        ("`chat_template` is 7", "tokenizer_config.json", {"chat_template": 7}),
        ("`eos_token_id` is 'x'", "generation_config.json", {"eos_token_id": "x"}),
        ("the first token is None", "tokenizer_config.json", {"add_bos_token": True}),
    ],
)
def test_a_tokenizer_that_is_not_served_is_named(
    why: str, file: str, fields: dict[str, object], tmp_path: Path
) -> None:
    changed(tiny_tokenizer.write(tmp_path), file, **fields)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises((StartError, CheckpointError)) as refused:
        Tokenizer(read_tokenizer(tmp_path, tiny_tokenizer.SIZE))
    assert why in f"{refused.value}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "Tiny-1.5b"
    TinyCheckpoint("pack-BF16", vocabulary=tiny_tokenizer.SIZE).write(path, shards=2)
    return tiny_tokenizer.write(path)


def test_a_directory_is_served(folder: Path, tmp_path: Path) -> None:
    with command_server(folder, tmp_path) as running:
        identity = httpx.get(f"{running.url}/identity").json()
        said = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
        assert identity["model"] == {
            "name": "Tiny-1.5b",
            "file_sha256": hashlib.sha256(canonical(said)).hexdigest(),
            "size_bytes": sum(path.stat().st_size for path in folder.iterdir()),
            "architecture": "llama",
            "quantisation": "W4A16 g128 (pack-quantized)",
        }
        question = {"model": "Tiny-1.5b", "max_tokens": 4, "temperature": 0}
        chat = httpx.post(
            f"{running.url}/v1/chat/completions",
            json={**question, "messages": [{"role": "user", "content": "the end"}]},
        ).json()
        prompt = "<|im_start|>user\nthe end<|im_end|>\n<|im_start|>assistant\n"
        text = httpx.post(f"{running.url}/v1/completions", json={**question, "prompt": prompt}).json()
        assert chat["choices"][0]["message"]["content"] == text["choices"][0]["text"]
        assert chat["usage"]["prompt_tokens"] == len(tiny_tokenizer.build().encode(prompt).ids)


@pytest.mark.parametrize(
    ("why", "file", "data"),
    [
        ("it is a directory without config.json", "config.json", None),
        ("tokenizer.json cannot be read", "tokenizer.json", None),
        ("`num_hidden_layers` is 2, more than the 0 tensors", "model.safetensors", b"\2\0\0\0\0\0\0\0{}"),
        ("ends inside its header", "model.safetensors", b"\2\0\0"),
        ("config.json is no JSON", "config.json", b"{'model_type': 'llama'}"),
    ],
)
def test_a_directory_that_is_no_model_is_an_error_with_a_next_command(
    why: str, file: str, data: bytes | None, tmp_path: Path
) -> None:
    tiny_tokenizer.write(TinyCheckpoint("F32", vocabulary=tiny_tokenizer.SIZE).write(tmp_path))
    (tmp_path / file).unlink()
    if data is not None:
        (tmp_path / file).write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-m", "server", str(tmp_path), "--port=0"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert why in done.stderr
    assert "next:" in done.stderr


@pytest.mark.parametrize("file", ["generation_config.json", "chat_template.jinja"])
def test_a_pipe_beside_the_tensors_keeps_no_start_waiting(file: str, tmp_path: Path) -> None:
    tiny_tokenizer.write(TinyCheckpoint("F32", vocabulary=tiny_tokenizer.SIZE).write(tmp_path))
    (tmp_path / file).unlink(missing_ok=True)
    os.mkfifo(tmp_path / file)
    words = [sys.executable, "-m", "server", str(tmp_path), "--port=0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 3, done.stderr
    assert f"{file} is not a regular file" in done.stderr


def test_files_that_go_while_they_are_hashed_are_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_tokenizer.write(TinyCheckpoint("F32", vocabulary=tiny_tokenizer.SIZE).write(tmp_path / "m"))

    def gone(*_: object) -> str:
        raise FileNotFoundError(2, "No such file or directory", "model.safetensors")

    monkeypatch.setattr(Origin, "sha256", gone)
    with pytest.raises(StartError, match="cannot be hashed") as caught:
        load(ModelOptions(folder, "m"), Metrics())
    assert (caught.value.exit_code, "model.safetensors" in caught.value.why) == (3, True)
