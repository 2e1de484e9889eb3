"""What is asked and what an answer is worth is the library's, byte for byte."""

from __future__ import annotations

import hashlib

import pytest
from evaluator_side import Ask
from families import ANY_FAMILY, GCD, RANSOM_NOTE, WORD_SORTING, Family, selection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW
@given(family=ANY_FAMILY, seed=st.integers(0, 10_000))
def test_questions_and_gold_answers_are_the_librarys(ask: Ask, family: Family, seed: int) -> None:
    drawn = ask("drawn", selection=selection(family, seed=seed, example_seed=seed + 50_000, n_shot=0))
    own = ask("directly", **family, seed=seed)

    tasks = drawn[family["name"]]["tasks"]
    assert [[task["text"], task["answer"]] for task in tasks] == own
    assert [task["digest"] for task in tasks] == [
        hashlib.sha256(text.encode()).hexdigest() for text, _ in own
    ]


@FEW
@given(
    family=st.sampled_from([GCD, RANSOM_NOTE, WORD_SORTING]),
    index=st.integers(0, 5),
    around=st.sampled_from(
        ["<answer>{}</answer>", "so <answer> {} </answer>.", "{}", "<answer>not {}</answer>"]
    ),
    right=st.booleans(),
    other=st.text(max_size=12),
)
def test_scores_are_the_librarys(
    ask: Ask, family: Family, index: int, around: str, right: bool, other: str
) -> None:
    text, answer = ask("directly", **family, seed=0)[index]
    completion = around.format(answer if right else other)
    digest = hashlib.sha256(text.encode()).hexdigest()

    answered, score = ask("scored", **family, seed=0, index=index, digest=digest, completion=completion)

    assert score == ask("directly_scored", **family, seed=0, index=index, completion=completion)
    assert answered == ("</answer>" in completion)


def test_a_right_answer_without_the_librarys_tags_scores_nothing(ask: Ask) -> None:
    text, answer = ask("directly", **GCD, seed=0)[0]
    digest = hashlib.sha256(text.encode()).hexdigest()

    assert ask("scored", **GCD, seed=0, index=0, digest=digest, completion=answer) == [False, 0.0]
    assert ask("scored", **GCD, seed=0, index=0, digest=digest, completion=f"<answer>{answer}</answer>") == [
        True,
        1.0,
    ]


def test_a_question_that_the_generator_no_longer_gives_is_not_scored(ask: Ask) -> None:
    refused = ask("scored", **GCD, seed=0, index=0, digest="0" * 64, completion="<answer>1</answer>")

    assert "gcd/0" in refused["refused"]


@pytest.mark.parametrize("prompt", ["direct", "default", "DeepSeekZero"])
def test_prompts_as_verifiers_loads_them_are_the_librarys_texts(ask: Ask, prompt: str) -> None:
    own = ask("directly", **WORD_SORTING, seed=0)
    examples = ask("directly", **{**WORD_SORTING, "size": 2}, seed=999)
    replies = {"word_sorting/0": f"<answer>{own[0][1]}</answer>", "word_sorting/1": own[1][1]}

    tasks = ask(
        "through_verifiers", selection=selection(WORD_SORTING, n_shot=2, prompt=prompt), replies=replies
    )

    assert [task["key"] for task in tasks] == [f"word_sorting/{index}" for index in range(6)]
    for (question, gold), task in zip(own, tasks, strict=True):
        assert task["system"] == ask("prompts")[prompt]
        assert task["messages"] == [
            ["user", examples[0][0]],
            ["assistant", f"<answer>{examples[0][1]}</answer>"],
            ["user", examples[1][0]],
            ["assistant", f"<answer>{examples[1][1]}</answer>"],
            ["user", question],
        ]
        assert task["data"]["answer"] == gold
    assert [task["score"] for task in tasks] == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert [task["answered"] for task in tasks] == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
