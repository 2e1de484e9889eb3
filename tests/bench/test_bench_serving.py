"""The stream client times what the server sent, and the command measures engine and server in one run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bench import serving
from bench.http_stream import Stream, StreamError, streams, together
from bench.serving import difference
from server.engine import Chunk, StepResult
from tests.server.http.running import Toy, toy_server


@pytest.fixture(scope="module")
def toy() -> Iterator[Toy]:
    """A toy whose tokens are far enough apart to arrive one by one."""
    with toy_server() as running:
        step = running.engine.step

        def slowly(chunks: Sequence[Chunk]) -> StepResult:
            time.sleep(0.01)
            return step(chunks)

        running.engine.step = slowly  # the scheduler looks it up at every step
        yield running


def body(**changed: object) -> dict[str, object]:
    return {"model": "toy", "prompt": "ab", "max_tokens": 6, "temperature": 0, "ignore_eos": True, **changed}


def port(toy: Toy) -> int:
    return int(toy.url.rpartition(":")[2])


def test_streams_count_tokens_and_order_their_times(toy: Toy) -> None:
    found = streams(port(toy), [body(prompt=text) for text in ("ab", "cd", "ef")])
    assert [stream.tokens for stream in found] == [6, 6, 6]
    for stream in found:
        assert stream.sent_s < stream.first_s < stream.last_s
        assert stream.ttft_s > 0
        assert stream.tokens_per_s > 0


def test_a_refusal_is_an_error_with_the_servers_words(toy: Toy) -> None:
    with pytest.raises(StreamError, match="no_such_field"):
        streams(port(toy), [body(no_such_field=1)])


def test_rates_are_of_the_tokens_after_the_first() -> None:
    one, two = Stream(11, 0.0, 1.0, 3.0), Stream(11, 0.0, 2.0, 5.0)
    assert one.tokens_per_s == pytest.approx(5)
    assert together([one, two]) == pytest.approx(20 / 4)


def test_what_http_adds_is_a_paired_difference() -> None:
    engine = [0.050, 0.080, 0.060, 0.100]
    found = difference(16, [value + 0.0015 for value in engine], engine, 1)
    assert found.median_ms == pytest.approx(1.5)
    assert (found.low_ms, found.high_ms) == (pytest.approx(1.5), pytest.approx(1.5))
    assert found.engine_ms == pytest.approx(70)


@pytest.mark.slow
def test_the_command_measures_the_real_server(model_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = serving.main(["--busy", "--json", "--pairs", "2", "--tokens", "4", "--threads", "1"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == (0 if found["floors_met"] else 5)
    assert len(found["floors"]) == 5
    assert all(each["measured"] is not None for each in found["floors"])
    assert {name: value > 0 for name, value in found["speeds"].items()} == dict.fromkeys(
        ("engine_1", "engine_8", "http_1", "http_8"), True
    )
