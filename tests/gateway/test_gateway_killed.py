"""kill -9 at any moment loses the requests in flight, and nothing that the child has seen."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from lanes import journal
from scripted_target import Asked, Reply, Upstream, completion

PROGRAM = Path(__file__).with_name("gateway_main.py")
TEXTS = [f"{number % 23}" for number in range(120)]


def answered(asked: Asked) -> Reply:
    return Reply(body=completion(f"{asked.json['messages'][0]['content']}#{asked.number}"))


def life(folder: Path, base_url: str, slots: int, lines: int | None, chance: random.Random) -> list[str]:
    """One life: the answers its child saw, until it had seen so many and a moment more had passed."""
    command = [sys.executable, PROGRAM, folder, base_url, str(slots), *TEXTS]
    seen: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PROGRAM.parent) as process:
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(line.decode().rstrip("\n"))
            if lines is not None and len(seen) >= lines:
                # Spin rather than sleep: the moments of interest are shorter than a scheduler's tick.
                for _ in range(chance.randrange(40_000)):
                    pass
                process.kill()
                lines = None
    return [line for line in seen if line and line != "end"]


def lives(folder: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    with Upstream(answered) as server:
        bound = 0
        for _ in range(kills):
            slots = chance.randint(1, 9)
            before = Counter(line["body"] for line in journal(folder)) if bound else Counter()
            seen = life(folder, server.base_url, slots, chance.randint(1, 40), chance)
            bound += slots
            # What was seen had been kept.
            kept = Counter(line["body"] for line in journal(folder))
            assert kept >= before
            said = Counter(completion(text).decode() for text in seen)
            assert kept >= said, f"seed {seed}"
        whole = life(folder, server.base_url, 4, None, chance)
        assert Counter(text.partition("#")[0] for text in whole) == Counter(TEXTS), f"seed {seed}"
        assert len(set(whole)) == len(TEXTS), f"seed {seed}"
        assert len(TEXTS) <= len(server.asked) <= len(TEXTS) + bound, f"seed {seed}"


@pytest.mark.slow
def test_nothing_that_was_seen_is_lost_and_nothing_kept_is_asked_again(tmp_path: Path) -> None:
    lives(tmp_path, kills=3, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_nothing_is_lost_at_any_of_a_hundred_moments(tmp_path: Path, seed: int) -> None:
    lives(tmp_path, kills=10, seed=seed)
