"""Hostile model files under sanitizers: each is refused with a message or served, and the process goes on.

What `Opener.open` asserts of every file: no report of a sanitizer, no crash, no minute without an answer, no
allocation past 64 MiB, no GiB of address space, and a message where it was refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from hypothesis import HealthCheck, Phase, given, settings

from tests.server.engine.tiny import TinyModel, WideModel
from tests.server.engine.tiny_qwen import TinyQwen3, TinyQwen35
from tests.server.fuzz.header import U8, Entry, Header, edited, parse
from tests.server.fuzz.opening import BAD_FILE, OK, Opener

pytestmark = pytest.mark.slow

WORKERS = 2


def sweep(driver: Path, mutants: Iterable[tuple[str, bytes]]) -> Counter[int]:
    """Open every mutant, in as many processes as there are workers; how many got each status."""
    listed = list(mutants)

    def part(worker: int) -> Counter[int]:
        counts: Counter[int] = Counter()
        with Opener(driver) as opener:
            for name, data in listed[worker::WORKERS]:
                try:
                    counts[opener.open(data).status] += 1
                except AssertionError as error:
                    raise AssertionError(f"{name}: {error}") from error
        return counts

    with ThreadPoolExecutor(WORKERS) as pool:
        return sum(pool.map(part, range(WORKERS)), Counter())


def header_bytes(data: bytes) -> int:
    return len(data) - len(parse(data).data)


def bit_flips(data: bytes) -> Iterator[tuple[str, bytes]]:
    for bit in range(header_bytes(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit % 8} of byte {bit // 8}", bytes(changed)


def scrambled(data: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Mutants with several bytes overwritten, moved, doubled or cut out at random places of the header."""
    end = header_bytes(data)
    for number in range(count):
        random = np.random.default_rng([seed, number])
        changed = bytearray(data)
        for _ in range(int(random.integers(1, 9))):
            at, size = int(random.integers(end)), int(random.integers(1, 17))
            match int(random.integers(5)):
                case 0:
                    changed[at : at + size] = random.bytes(size)
                case 1:
                    changed[at : at + size] = bytes([random.choice([0, 1, 0x7F, 0x80, 0xFF])]) * size
                case 2:
                    del changed[at : at + size]
                case 3:
                    changed[at:at] = changed[at : at + size]
                case _:
                    other = int(random.integers(end))
                    changed[at : at + size] = changed[other : other + size]
        yield f"scrambled {seed}/{number}", bytes(changed)


def test_a_whole_file_is_served_under_the_sanitizers(driver: Path, small: bytes) -> None:
    assert parse(small).encode() == small
    with Opener(driver) as opener:
        assert opener.open(small).served
        assert opener.open(small, threads=3, slots=2).served


def test_every_truncation_is_an_error(driver: Path, small: bytes) -> None:
    end = header_bytes(small)
    sizes = [*range(end), *range(end, len(small), 131), len(small) - 1]
    counts = sweep(driver, ((f"cut at {size}", small[:size]) for size in sizes))
    assert counts == {BAD_FILE: len(sizes)}


def test_no_flipped_bit_of_the_header_does_harm(driver: Path, small: bytes) -> None:
    counts = sweep(driver, bit_flips(small))
    assert counts[OK] < 0.25 * counts.total() < counts[BAD_FILE]


@pytest.mark.parametrize("count", [1000, pytest.param(20_000, marks=pytest.mark.long)])
def test_no_scrambled_header_does_harm(driver: Path, small: bytes, count: int) -> None:
    counts = sweep(driver, scrambled(small, count, seed=count))
    assert counts[OK] < 0.25 * counts.total() < counts[BAD_FILE]


def structured(driver: Path, small: bytes, examples: int) -> Counter[int]:
    """Open files made of edits to a whole file's fields; a finding is shrunk to the fewest edits."""
    counts: Counter[int] = Counter()
    openers = [Opener(driver)]

    @settings(
        max_examples=examples,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
    @given(edited(parse(small)))
    def one(header: Header) -> None:
        try:
            counts[openers[0].open(header.encode()).status] += 1
        except AssertionError:
            openers[0] = Opener(driver)  # the next example needs a process that lives
            raise

    run: Callable[[], None] = one
    run()
    openers[0].close()
    return counts


@pytest.mark.parametrize("examples", [500, pytest.param(12_000, marks=pytest.mark.long)])
def test_no_lying_header_does_harm(driver: Path, small: bytes, examples: int) -> None:
    counts = structured(driver, small, examples)
    assert counts[BAD_FILE] > 0.3 * counts.total()


@pytest.mark.parametrize("examples", [120, pytest.param(4_000, marks=pytest.mark.long)])
def test_no_lying_header_of_a_hybrid_does_harm(driver: Path, hybrid: bytes, examples: int) -> None:
    counts = structured(driver, hybrid, examples)
    assert counts[BAD_FILE] > 0.3 * counts.total()


def test_every_kind_of_model_runs_clean(driver: Path, tmp_path: Path) -> None:
    """Steps of models whose shapes are awkward, and of every way to store a row."""
    kinds = {
        "grouped": TinyModel(heads=4, kv_heads=2, head_dim=24, layers=1),
        "partial rope": TinyModel(heads=3, kv_heads=3, rope_dim=16, layers=1, ffn=32),
        "untied": TinyModel(tied=False, layers=1, vocabulary=17),
        "short context": TinyModel(layers=1, context=3),
        "one token": TinyModel(layers=1, vocabulary=1),
        "five bits": TinyModel(kind=Kind.Q5_0, embedding_kind=Kind.Q5_1, layers=1, vocabulary=17),
        "bfloat16": TinyModel(kind=Kind.BF16, embedding_kind=Kind.BF16, layers=1, vocabulary=17),
        "Q4_K_M": WideModel(kind=Kind.Q4_K, embedding_kind=Kind.Q6_K, vocabulary=17),
        "Q5_K": WideModel(kind=Kind.Q5_K, embedding_kind=Kind.Q5_K, vocabulary=17),
        "normed heads": TinyQwen3(heads=4, kv_heads=2, head_dim=24, layers=1),
        "hybrid": TinyQwen35(layers=2),
        "hybrid in halves": TinyQwen35(layers=2, vector_kind=Kind.BF16, skipped=0, conv=2),
    }
    with Opener(driver) as opener:
        for name, model in kinds.items():
            path = tmp_path / "model.gguf"
            model.write(path)
            for int8 in (False, True):
                assert opener.open(path.read_bytes(), threads=2, slots=2, int8=int8).served, name


@pytest.mark.parametrize("name", [b"\0hidden", b"x" * 65535, b"\x1b[2J", b"\xff\xfe", b"new\nline"])
def test_a_name_that_a_terminal_must_not_see_is_spelt_out(driver: Path, small: bytes, name: bytes) -> None:
    whole = parse(small)
    strange = replace(whole, tensors=(*whole.tensors[:-1], replace(whole.tensors[-1], name=name)))
    twice = replace(whole, entries=(*whole.entries, *[Entry(name, U8, b"\1")] * 2))
    with Opener(driver) as opener:
        for file, why in ((strange, "has no place in the architecture"), (twice, "stands twice")):
            opened = opener.open(file.encode())
            assert opened.message.isprintable()
            assert why in opened.message or "is missing" in opened.message
            assert len(opened.message) < 300
