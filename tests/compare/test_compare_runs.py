"""Two runs beside each other: what is said of them follows from the rows, and from nothing that helps B."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from assay.compare.compare import compare
from assay.compare.comparison import Compared, Comparison
from assay.compare.conditions import UnlikeError
from assay.compare.render import markdown, short_cells, table
from assay.compare.words import headlines, reasons, same_output
from assay.errors import ConfigurationError
from assay.view.view import Fact, View
from compare.made import CONDITIONS, Made, among, made, row, rows

FEW = settings(max_examples=10)
REWARDS = st.lists(st.sampled_from([0.0, 1.0, 1.0, 0.5, None]), min_size=1, max_size=30)
RIGHT = [1.0, 1.0, 0.0, 1.0] * 25
# One answer in five of those that were right is lost.
WORSE = [reward if number % 5 else 0.0 for number, reward in enumerate(RIGHT)]


def only(comparison: Comparison) -> Compared:
    (found,) = comparison.benchmarks
    return found


def held(a: Sequence[float | None], b: Sequence[float | None]) -> Compared:
    return only(compare(made(a), made(b)))


@FEW
@given(REWARDS)
def test_a_run_beside_itself_is_never_better_or_worse(rewards: list[float | None]) -> None:
    found = held(rewards, rewards)
    assert found.verdict in ("no difference shown", "too few samples")
    assert (found.all.difference, found.all.p, found.flips_total) == (0.0, 1.0, 0)


@FEW
@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=8, max_size=60))
def test_the_other_way_round_the_word_and_the_sign_are_turned(rows: list[tuple[float, float]]) -> None:
    a, b = [first for first, _ in rows], [second for _, second in rows]
    there, back = held(a, b), held(b, a)
    turned = {"better": "worse", "worse": "better"}
    assert back.verdict == turned.get(there.verdict, there.verdict)
    assert back.all.difference == pytest.approx(-there.all.difference, abs=1e-6)
    assert (back.p_holm, back.mde) == (there.p_holm, there.mde)
    assert (back.signs.gains, back.signs.losses) == (there.signs.losses, there.signs.gains)


@FEW
@given(REWARDS, st.randoms(use_true_random=False))
def test_neither_the_order_of_rows_nor_what_tasks_are_called_matters(
    rewards: list[float | None], random: Random
) -> None:
    first, second = rows(rewards), rows(list(reversed(rewards)))
    told = compare(Made(list(first)), Made(list(second)))
    for side in (first, second):
        for number, sample in enumerate(side):
            side[number] = sample.model_copy(update={"task_key": f"renamed {sample.task_key}"})
        random.shuffle(side)
    again = compare(Made(first), Made(second))
    for found, other in zip(told.benchmarks, again.benchmarks, strict=True):
        assert (other.verdict, other.all.bounds, other.mde) == (found.verdict, found.all.bounds, found.mde)
        assert other.all.p == pytest.approx(found.all.p, rel=1e-6)


def test_what_lost_answers_is_worse_and_the_other_way_round_better() -> None:
    lost, won = held(RIGHT, WORSE), held(WORSE, RIGHT)
    assert (lost.verdict, won.verdict) == ("worse", "better")
    assert lost.all.bounds is not None
    assert lost.all.bounds.high < 0
    assert (lost.signs.gains, lost.signs.losses, lost.odds) == (0, 15, 0.0)
    assert (lost.a_score, lost.b_score, lost.relative) == (0.75, 0.6, -0.2)
    assert won.odds is None
    assert [flip.change for flip in lost.flips] == [-1.0] * 15


def test_a_loss_that_chance_explains_is_none() -> None:
    found = held(RIGHT, [0.0, 0.0, *RIGHT[2:]])
    assert found.signs.losses == 2
    assert found.verdict == "too few samples"
    assert found.mde is not None
    assert found.mde > 0.05


def test_too_few_samples_becomes_no_difference_with_more_of_them_or_a_wider_threshold() -> None:
    assert held([1.0] * 40, [1.0] * 40).verdict == "too few samples"
    assert held([1.0] * 400, [1.0] * 400).verdict == "no difference shown"
    wide = compare(made([1.0] * 40), made([1.0] * 40), threshold=0.5)
    assert wide.verdict == "no difference shown"
    few = only(compare(made([1.0] * 5), made([0.0] * 5), threshold=1.0))
    assert (few.verdict, few.mde) == ("too few samples", None)
    assert "no difference at all" in few.reason


def test_what_the_reference_failed_makes_nobody_better() -> None:
    failed = [None if number < 40 else reward for number, reward in enumerate(RIGHT)]
    found = held(failed, RIGHT)
    assert found.all.bounds is not None
    assert found.all.bounds.low > 0.2
    assert found.verdict not in ("better", "worse")
    assert "failed or were cut" in found.reason
    assert found.kept is not None
    assert found.kept.difference == 0.0
    assert (found.errors.a, found.errors.b, found.errors.shifted) == (40, 0, True)


def test_what_b_failed_counts_against_it_and_is_told_as_that() -> None:
    found = held(RIGHT, [None if number < 40 else reward for number, reward in enumerate(RIGHT)])
    assert found.verdict == "worse"
    assert "have no score" in found.reason
    assert found.both is not None
    assert (found.both.difference, found.both.p) == (0.0, 1.0)
    assert any("of B's rollouts" in said and "no score" in said for said in found.warnings)


@pytest.mark.parametrize("side", ["a", "b"])
def test_an_answer_that_a_limit_cut_makes_nobody_better(side: str) -> None:
    lost = {
        number for number, (before, after) in enumerate(zip(RIGHT, WORSE, strict=True)) if before != after
    }

    def run(rewards: list[float], cut: bool) -> Made:
        return Made([row(f"t{n}", reward, truncated=cut and n in lost) for n, reward in enumerate(rewards)])

    found = only(compare(run(WORSE, side == "a"), run(RIGHT, side == "b")))
    assert found.all.p < 0.05
    assert found.verdict not in ("better", "worse")
    assert found.truncation.shifted
    assert (found.truncation.a, found.truncation.b) == ((15, 0) if side == "a" else (0, 15))


def test_an_answer_cut_at_b_may_count_against_it() -> None:
    cut = Made(
        [
            row(f"t{n}", after, truncated=after != before)
            for n, (before, after) in enumerate(zip(RIGHT, WORSE, strict=True))
        ]
    )
    assert only(compare(made(RIGHT), cut)).verdict == "worse"


def test_a_rollout_that_never_happened_is_a_failure_like_any_other() -> None:
    missing = Made([row(f"t{n}", None if n < 30 else 1.0, missing=n < 30) for n in range(100)])
    found = only(compare(made([1.0] * 100), missing))
    assert (found.errors.b, found.verdict) == (30, "worse")


def test_several_rollouts_of_a_task_are_one_piece_of_evidence() -> None:
    def run(rewards: list[float], times: int) -> Made:
        return Made([row(f"t{n}", reward, k) for n, reward in enumerate(rewards) for k in range(times)])

    once = only(compare(run([1.0] * 12, 1), run([1.0] * 7 + [0.0] * 5, 1)))
    often = only(compare(run([1.0] * 12, 8), run([1.0] * 7 + [0.0] * 5, 8)))
    assert (once.pairs, often.pairs, often.questions) == (12, 96, 12)
    assert often.all.p == pytest.approx(once.all.p, rel=1e-6)
    assert often.verdict == once.verdict == "too few samples"


def test_questions_that_are_asked_twice_are_one() -> None:
    a = Made([row(f"t{n}", 1.0, question=f"q{n % 4}") for n in range(40)])
    b = Made([row(f"t{n}", 0.0, question=f"q{n % 4}") for n in range(40)])
    found = only(compare(a, b))
    assert (found.pairs, found.questions, found.verdict) == (40, 4, "too few samples")


def test_over_more_benchmarks_the_same_loss_is_less() -> None:
    a = [1.0] * 40
    b = [0.0] * 7 + [1.0] * 33
    alone = held(a, b)
    assert (alone.verdict, alone.p_holm) == ("worse", alone.all.p)
    others = [sample for n in range(9) for sample in rows(a, family=f"same {n}")]
    among_ten = compare(Made([*rows(a), *others]), Made([*rows(b), *others]))
    first = among_ten.benchmarks[0]
    assert first.p_holm == pytest.approx(10 * alone.all.p)
    assert first.verdict == "too few samples"
    assert first.mde is not None
    assert alone.mde is not None
    assert first.mde > alone.mde


def test_the_word_for_all_of_them_is_the_gravest() -> None:
    base = [*rows(RIGHT, family="x"), *rows(WORSE, family="y")]
    mixed = [*rows(WORSE, family="x"), *rows(RIGHT, family="y")]
    comparison = compare(Made(base), Made(mixed))
    assert [found.verdict for found in comparison.benchmarks] == ["worse", "better"]
    assert comparison.verdict == "worse"
    assert compare(made(WORSE), made(RIGHT)).verdict == "better"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("data.digest", {**CONDITIONS, "data.digest": "d2"}),
        ("sampling.temperature", {**CONDITIONS, "sampling.temperature": "0.6"}),
        ("sandbox.image", {**CONDITIONS, "sandbox.image": "i"}),
        ("limits.max_tokens", {k: v for k, v in CONDITIONS.items() if not k.startswith("limits")}),
    ],
)
def test_runs_under_other_conditions_are_refused_by_name_and_accepted_by_name(
    name: str, other: dict[str, str]
) -> None:
    a, b = made(RIGHT), among(made(RIGHT), conditions=other, run=Path("/runs/other"))
    with pytest.raises(UnlikeError, match=f"not alike: {name}") as refused:
        compare(a, b)
    assert refused.value.exit_code == 2
    assert [found.name for found in refused.value.differences] == [name]
    assert f"--allow {name}" in refused.value.next
    part = name.partition(".")[0]
    for allow in (name, part, f"{part}.*", "*"):
        comparison = compare(a, b, [allow, "evaluator.version"])
        (accepted,) = comparison.accepted
        assert (accepted.name, accepted.a, accepted.b) == (name, CONDITIONS.get(name), other.get(name))
        assert comparison.unused == ("evaluator.version",)
        assert any(f"accepted difference: {name}" in line for line in headlines(comparison))
    with pytest.raises(UnlikeError):
        compare(a, b, [part[:-1], f"{name}.more"])


def test_every_difference_is_told_at_once() -> None:
    other = {**CONDITIONS, "data.digest": "d2", "limits.max_tokens": "9"}
    with pytest.raises(UnlikeError) as refused:
        compare(made(RIGHT), among(made(RIGHT), conditions=other, metric="half right"))
    for said in ("data.digest: A d1, B d2", "limits.max_tokens: A 256, B 9", "evaluator.metric: A right"):
        assert said in refused.value.why


def test_an_equal_key_that_asks_something_else_is_another_task() -> None:
    b = Made([row("t0"), row("t1", question="another")])
    with pytest.raises(UnlikeError, match=r"pairs\.questions") as refused:
        compare(made([1.0, 1.0]), b)
    assert "in 1 pair(s), the first of task t1" in refused.value.why
    assert compare(made([1.0, 1.0]), b, ["pairs.questions"]).accepted[0].name == "pairs.questions"


def test_an_equal_question_in_another_prompt_is_another_template() -> None:
    b = Made([row("t0", prompt="think first: "), row("t1", None, prompt=None)])
    with pytest.raises(UnlikeError, match=r"pairs\.prompts") as refused:
        compare(made([1.0, 1.0]), b)
    assert "in 1 pair(s)" in refused.value.why, "a prompt that was never sent is no other one"


def test_runs_with_nothing_in_common_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no benchmark in common"):
        compare(made([1.0]), made([1.0], entry="other"))
    with pytest.raises(ConfigurationError, match="no rollout in common"):
        compare(made([1.0]), Made([row("t8")]))


def test_what_only_one_of_them_has_is_told_and_in_no_figure() -> None:
    a = Made([*rows([1.0] * 10), *rows([1.0], family="only a")])
    b = Made([*rows([1.0] * 8), row("t20", 0.0), *rows([1.0], family="only b")])
    comparison = compare(a, b)
    assert (comparison.only_a, comparison.only_b) == (("sums/only a",), ("sums/only b",))
    found = only(comparison)
    assert (found.pairs, found.alone_a, found.alone_b, found.b_score) == (8, 2, 1, 1.0)
    assert found.alone == ("A: t8, rollout 0", "A: t9, rollout 0", "B: t20, rollout 0")
    assert any("without a partner" in said for said in found.warnings)


def test_tokens_are_a_ratio_with_an_interval_and_a_band() -> None:
    random = Random(5)
    lengths = [random.randrange(50, 150) for _ in range(60)]
    a = Made([row(f"t{n}", tokens=length) for n, length in enumerate(lengths)])
    b = Made([row(f"t{n}", tokens=length * 4 // 5) for n, length in enumerate(lengths)])
    found = only(compare(a, b))
    assert found.tokens is not None
    assert found.tokens.bounds is not None
    assert found.tokens.bounds.low <= found.tokens.ratio <= found.tokens.bounds.high
    assert found.tokens.ratio == pytest.approx(0.8, abs=0.01)
    assert not found.tokens.within
    assert any("outside 90 to 110 %" in said for said in found.warnings)
    same = only(compare(a, a))
    assert same.tokens is not None
    assert (same.tokens.ratio, same.tokens.within, same.warnings) == (1.0, True, ())


def test_speed_stands_beside_and_moves_no_verdict() -> None:
    slow = Made(rows(RIGHT, seconds=2.0, tokens=10))
    fast = Made(rows(RIGHT, seconds=0.5, tokens=10))
    found, still = only(compare(slow, fast)), only(compare(slow, slow))
    assert found.speed is not None
    assert (found.speed.a_seconds, found.speed.b_seconds) == (2.0, 0.5)
    assert (found.speed.a_tokens_per_s, found.speed.b_tokens_per_s) == (5.0, 20.0)
    assert (found.verdict, found.reason) == (still.verdict, still.reason)


def test_what_nobody_measured_is_not_told() -> None:
    bare = Made(rows(RIGHT, seconds=None, tokens=None))
    found = only(compare(bare, bare))
    assert (found.tokens, found.speed, found.same) == (None, None, None)


def test_answers_that_are_the_same_bytes_are_counted_and_all_of_them_are_no_difference() -> None:
    a = Made([row(f"t{n}", said="yes") for n in range(4)])
    b = Made([row(f"t{n}", said="yes" if n else "no") for n in range(4)])
    found = only(compare(a, b))
    assert (found.same, found.verdict) == (3, "too few samples")
    same = only(compare(a, a))
    assert (same.verdict, same.reason) == ("no difference shown", "every answer is the same bytes")


def test_the_same_bytes_with_another_reward_are_told() -> None:
    a = Made([row(f"t{n}", said="yes") for n in range(4)])
    b = Made([row(f"t{n}", 1.0 if n else 0.0, said="yes") for n in range(4)])
    found = only(compare(a, b))
    assert found.verdict == "too few samples"
    assert found.warnings[0].startswith("the same output got another reward in 1 pair(s)")


def test_flips_are_linked_to_both_records_and_hold_what_was_said_if_asked() -> None:
    a = among(made([1.0, 1.0, 0.0]), texts={("t0", 0): "four", ("t2", 0): "I do not know"})
    b = among(made([0.0, 1.0, 1.0]), texts={("t0", 0): "five"})
    plain = only(compare(a, b))
    assert [(flip.task_key, flip.change) for flip in plain.flips] == [("t0", -1.0), ("t2", 1.0)]
    assert [flip.a.link for flip in plain.flips] == ["sums/traces.jsonl:1"] * 2
    assert {flip.a.text for flip in plain.flips} == {None}
    loss, gain = only(compare(a, b, texts=True)).flips
    assert (loss.a.text, loss.b.text) == ("four", "five")
    assert (gain.a.text, gain.b.text) == ("I do not know", None)
    few = only(compare(a, b, flips=1, texts=True))
    assert (len(few.flips), few.flips_total) == (1, 2)


def test_what_weakens_a_run_stands_beside_the_verdict() -> None:
    weak = among(
        made(RIGHT),
        status="partial",
        server="s",
        unsound=(Fact("worktree", "dirty", "measured", sound=False), Fact("egress", "cut", "measured")),
    )
    comparison = compare(weak, among(made(RIGHT), server="s"))
    assert comparison.a.unsound == ("worktree: dirty",)
    assert comparison.b.unsound == ()
    assert comparison.warnings[0] == "A is partial: its rows without a score count 0"
    assert "claim to be s" in comparison.warnings[1]
    text = "\n".join(headlines(comparison))
    assert text.startswith("verdict: ")
    assert "weakens A: worktree: dirty" in text


def test_a_made_run_is_a_view() -> None:
    view: View = made([1.0])
    assert compare(view, view).benchmarks[0].pairs == 1


def test_half_a_surrogate_pair_in_a_strangers_record_is_a_name_like_any_other() -> None:
    key = "half \ud800"
    a, b = Made([row(key, 1.0), row("t")]), Made([row(key, 0.0), row("t")])
    a.rows[0] = a.rows[0].model_copy(update={"cluster": key, "record": key, "family": key})
    b.rows[0] = b.rows[0].model_copy(update={"cluster": key, "record": key, "family": key})
    comparison = compare(a, among(b, texts={(key, 0): "said \udfff"}), texts=True)
    (flip,) = (flip for found in comparison.benchmarks for flip in found.flips)
    assert (flip.task_key, flip.b.text) == (key, "said \udfff")
    assert "half \\\\ud800" in markdown(comparison).encode("utf-8").decode("utf-8")


def lines(comparison: Comparison, columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = io.StringIO()
    Console(file=out, soft_wrap=True).print(table(comparison))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_terminal_folds_names_and_never_cuts_a_number(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "a family with quite a long name of many words"
    a = Made([*rows(RIGHT, family=long), *rows(RIGHT, family="short")])
    b = Made([*rows(WORSE, family=long), *rows(RIGHT, family="short")])
    comparison = compare(a, b)
    shown = lines(comparison, columns, monkeypatch)
    assert shown[0].startswith("sums/… ")
    text = "\n".join(shown)
    for found in comparison.benchmarks:
        for cell in short_cells(found):
            assert cell in text
    head = "".join(line[: shown[0].index(" n ") - 2] for line in shown[1:])
    assert "".join(long.split()) in "".join(head.split())
    assert columns < 80 or max(map(len, shown)) <= columns


def test_what_several_benchmarks_share_is_said_once() -> None:
    a = Made([sample for n in range(4) for sample in rows([1.0] * 8, family=f"f{n}", said="x")])
    text = "\n".join(reasons(compare(a, a).benchmarks))
    assert text == "no difference shown: every answer is the same bytes (all of them)"
    assert list(same_output(compare(a, a).benchmarks)) == ["same output, byte for byte: 32 of 32 pairs"]
    mixed = Made([*rows([0.0] * 8, family="f0", said="y"), *a.rows[8:]])
    found = compare(a, mixed).benchmarks
    assert [line.rpartition("(")[2] for line in reasons(found)] == ["sums/f0)", "sums/f1, sums/f2, sums/f3)"]


def test_markdown_shows_what_strangers_called_their_tasks_and_renders_none_of_it() -> None:
    hostile = "[x](javascript:alert) | <img src=x>\n# `t`"
    comparison = compare(Made([row(hostile, 1.0), row("t")]), Made([row(hostile, 0.0), row("t")]))
    text = markdown(comparison)
    (line,) = [line for line in text.splitlines() if ": loss:" in line]
    assert "\\<img" in line
    assert "\\[x]" in line
    assert "\\|" in line
    assert "\\`t\\`" in line
    assert not any(line.startswith("# ") for line in text.splitlines()[1:])
