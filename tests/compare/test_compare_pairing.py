"""Pairs: the same rollout of the same task in both runs, in whatever order; what has no partner is told."""

from __future__ import annotations

from random import Random

import pytest

from assay.compare.pairing import Pair, Pairing, Places
from assay.errors import VerificationError
from assay.view.view import Benchmark
from compare.made import Made, made, numbered, row, rows


def places(view: Made) -> Places:
    return Places(view.benchmarks())


def paired(a: Made, b: Made, number: int = 0) -> list[Pair]:
    with Pairing() as pairing:
        pairing.read("a", a, places(a))
        pairing.read("b", b, places(b))
        return list(pairing.pairs(number))


def test_rows_are_paired_by_task_and_rollout_in_the_order_of_the_first_run() -> None:
    a = [row(f"t{task}", float(task == 1), rollout) for task in (2, 1, 10) for rollout in (0, 1)]
    b = [sample.model_copy(update={"reward": 1.0 - (sample.reward or 0.0)}) for sample in a]
    Random(4).shuffle(b)
    found = paired(Made(numbered(a)), Made(numbered(b)))
    assert [(pair.task_key, pair.rollout) for pair in found] == [
        (sample.task_key, sample.rollout) for sample in a
    ]
    for pair in found:
        assert (pair.a.value, pair.b.value) == (float(pair.task_key == "t1"), float(pair.task_key != "t1"))
        assert (a[(pair.a.line or 0) - 1].task_key, b[(pair.b.line or 0) - 1].task_key) == (
            pair.task_key,
        ) * 2


def test_what_has_no_partner_is_counted_and_named() -> None:
    a, b = made([1.0] * 5), Made([*rows([1.0, 1.0]), row("t9"), row("t0", rollout=1)])
    with Pairing() as pairing:
        pairing.read("a", a, places(a))
        pairing.read("b", b, places(b))
        assert len(list(pairing.pairs(0))) == 2
        assert pairing.alone("a", 0, 2) == (3, ("t2, rollout 0", "t3, rollout 0"))
        assert pairing.alone("b", 0, 5) == (2, ("t9, rollout 0", "t0, rollout 1"))


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_row_that_stands_there_twice_is_refused_by_its_name(side: str) -> None:
    twice, once = Made([row("t0"), row("t0", 0.0)]), made([1.0])
    with pytest.raises(VerificationError, match="sums: rollout 0 of t0 stands there twice"):
        paired(*((twice, once) if side == "a" else (once, twice)))


def test_tasks_of_equal_keys_in_two_benchmarks_are_not_confused() -> None:
    a = Made([row("t0", 1.0, family="add"), row("t0", 0.0, family="take")])
    b = Made([row("t0", 1.0, family="take"), row("t0", 0.0, family="add")])
    with Pairing() as pairing:
        order = Places(a.benchmarks())
        pairing.read("a", a, order)
        pairing.read("b", b, order)
        ((add,), (take,)) = (list(pairing.pairs(number)) for number in (0, 1))
    assert (add.family, add.a.value, add.b.value) == ("add", 1.0, 0.0)
    assert (take.family, take.a.value, take.b.value) == ("take", 0.0, 1.0)


def test_a_benchmark_of_all_families_has_every_row_of_its_entry() -> None:
    def benchmark(name: str, entry: str, family: str | None) -> Benchmark:
        return Benchmark(name, entry, family, None, None, None, None, 0.95, None, {}, {})

    order = Places([benchmark("job", "job", None), benchmark("sums/add", "sums", "add")])
    assert order.name(row("t", entry="job", family="anything")) == "job"
    assert order.name(row("t", entry="sums", family="add")) == "sums/add"
    assert order.name(row("t", entry="sums", family="take")) is None


def test_flips_come_losses_first_and_the_largest_first() -> None:
    a = Made(rows([0.0, 1.0, 0.5, 1.0, 0.0, 1.0]))
    b = Made(rows([1.0, 1.0, 0.25, None, 0.5, 0.0]))
    with Pairing() as pairing:
        pairing.read("a", a, places(a))
        pairing.read("b", b, places(b))
        keys = [pair.task_key for pair in pairing.flips(0, None)]
        assert keys == ["t3", "t5", "t2", "t0", "t4"]
        assert [pair.task_key for pair in pairing.flips(0, 2)] == keys[:2]
        assert list(pairing.flips(0, 0)) == []
