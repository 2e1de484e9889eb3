"""`/metrics` as Prometheus' own parser reads it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.http.running import Toy, toy_server


@pytest.fixture
def toy() -> Iterator[Toy]:
    with toy_server(slots=2) as running:
        yield running


def page(toy: Toy) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = httpx.get(f"{toy.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def ask(toy: Toy, **parameters: object) -> httpx.Response:
    body = {"model": "toy", "prompt": "count me", "max_tokens": 5, "ignore_eos": True, **parameters}
    return httpx.post(f"{toy.url}/v1/completions", json=body)


def test_tokens_steps_and_times_are_counted(toy: Toy) -> None:
    before = page(toy)
    ask(toy)
    ask(toy, n=2)
    httpx.post(f"{toy.url}/v1/completions", json={})
    after = page(toy)

    def grown(name: str, **labels: str) -> float:
        key = (name, tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0)

    assert grown("assay_generation_tokens_total") == 15
    assert grown("assay_prompt_tokens_total") == 3 * len("count me")
    assert grown("assay_engine_steps_total") >= 10
    assert grown("assay_requests_total", route="/v1/completions", status="200") == 2
    assert grown("assay_requests_total", route="/v1/completions", status="400") == 1
    for name, count in (
        ("assay_time_to_first_token_seconds", 3),
        ("assay_queue_wait_seconds", 3),
        ("assay_inter_token_latency_seconds", 12),
    ):
        assert grown(f"{name}_count") == count
        assert grown(f"{name}_bucket", le="+Inf") == count
        assert after[f"{name}_sum", ()] >= 0
        bounds = sorted(
            (float(dict(labels)["le"]), value)
            for (found, labels), value in after.items()
            if found == f"{name}_bucket"
        )
        assert [value for _, value in bounds] == sorted(value for _, value in bounds)
    assert after["process_resident_memory_bytes", ()] > 1 << 20


def test_cached_prompt_tokens_are_counted_and_told(toy: Toy) -> None:
    prompt = "the same beginning of a prompt that is long enough to be kept by the cache of prompts " * 2
    first = ask(toy, prompt=prompt).json()["usage"]
    second = ask(toy, prompt=prompt).json()["usage"]
    cold = ask(toy, prompt=prompt, cache_prompt=False).json()["usage"]
    told = [usage["prompt_tokens_details"]["cached_tokens"] for usage in (first, second, cold)]
    assert told[0] == told[2] == 0
    assert 0 < told[1] < len(prompt)
    assert page(toy)["assay_prompt_tokens_cached_total", ()] == told[1]


def test_who_waits_is_shown_while_he_waits(toy: Toy) -> None:
    toy.engine.gate.clear()
    asking = threading.Thread(target=ask, args=(toy,), kwargs={"n": 3})
    asking.start()
    assert toy.engine.stepping.wait(20)
    assert page(toy)["assay_requests_running", ()] == 2
    assert page(toy)["assay_requests_waiting", ()] == 1
    toy.engine.gate.set()
    asking.join(20)
    toy.wait_idle()
