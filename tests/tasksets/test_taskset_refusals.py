"""What the library does not know is refused by name, with the nearest, before anything is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evaluator_side import Ask, describe
from families import GCD, Family, selection

from assay.paths import CONFIGS


def gcd(**changes: object) -> Family:
    return {**GCD, **changes}


def with_parameters(**changes: object) -> Family:
    return gcd(parameters={**GCD["parameters"], **changes})


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (selection(gcd(name="gdc")), "unknown family 'gdc'; did you mean 'gcd'?"),
        (selection(with_parameters(max_valu=3)), "unknown parameter gcd.max_valu; did you mean 'max_value'?"),
        (selection(with_parameters(seed=3)), "gcd.seed is not a parameter"),
        (selection(with_parameters(size=3)), "gcd.size is not a parameter"),
        (selection(gcd(parameters={"min_numbers": 2})), "max_numbers = 2, min_value = 1, max_value = 1000"),
        (selection(with_parameters(max_value="20")), "gcd.max_value is '20'"),
        (selection(with_parameters(max_value=True)), "gcd.max_value is True"),
        (selection(with_parameters(min_value=30)), "the library refuses these parameters"),
        (selection(GCD, prompt="dirct"), "unknown prompt 'dirct'; did you mean 'direct'?"),
        (selection(GCD, example_seed=0), "seed and example_seed are both 0"),
        (selection(GCD, n_shot=-1), "n_shot -1"),
        (selection(GCD, hash_seed=-1), "hash_seed -1"),
        (selection(gcd(size=0)), "size 0 is below 1"),
        (selection(GCD, GCD), "'gcd' is named twice"),
        (selection(), "no families"),
        (selection(GCD, nshot=4), "unknown key nshot; did you mean 'n_shot'?"),
        ({k: v for k, v in selection(GCD).items() if k != "seed"}, "missing key seed"),
        (selection({"name": "gcd", "size": 8}), "missing key families.parameters"),
        (
            selection(
                {
                    "name": "word_sorting",
                    "size": 1,
                    "parameters": {
                        "min_words": 3,
                        "max_words": 4,
                        "min_word_length": 3,
                        "max_word_length": 12,
                        "transformation": "shouted",
                    },
                }
            ),
            "word_sorting.transformation: 'shouted'",
        ),
    ],
)
def test_a_selection_the_library_does_not_know_is_refused(
    ask: Ask, chosen: dict[str, Any], said: str
) -> None:
    assert said in ask("drawn", selection=chosen)["refused"]


def test_the_command_says_what_is_wrong_and_exits_with_two(tmp_path: Path) -> None:
    config = tmp_path / "entry.toml"
    text = (CONFIGS / "demo" / "reasoning-gym.toml").read_text("utf-8")
    config.write_text(text.replace('"syllogism"', '"sylogism"'), "utf-8")

    done = describe(config)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "unknown family 'sylogism'; did you mean 'syllogism'?" in done.stderr


def test_another_tasksets_configuration_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "entry.toml"
    config.write_text('[env.taskset]\nid = "gsm8k"\n', "utf-8")

    done = describe(config)

    assert done.returncode == 2
    assert "'gsm8k'" in done.stderr
