"""`python -m bench.needle`: whether a number is found again in a long prompt, by form of KV.

Contract: prose and code of `bench/documents`, repeated to the length asked for, with one sentence in it that
holds a number of five digits; the question at the end begins the answer, and what is measured are the
log-probabilities that the shipped model gives the five digits, each after those before it. A number counts as
found when every digit is the likeliest token. How far back a model of this size finds anything is its own
ability, so a form of keys and values is held against the halves (f16) over the same prompts: its mean
log-probability of a digit may be worse by no more than its bound (`bench.floors.NEEDLE_LOSS`).

Exit codes: 0 every form is within its bound; 2 no such prompt can be made; 3 something is missing; 5 one is
not.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay.console import complain, say
from assay.errors import AssayError, ConfigurationError, PrerequisiteError
from assay.models import verify
from bench import floors, machine
from bench.fidelity import DOCUMENTS
from bench.options import bench_parser, whole
from bench.peers import MODEL, OPEN_S, open_side
from bench.results import table, write_section
from bench.sides.protocol import Side as Child
from bench.sides.protocol import SideError

LENGTHS = (1024, 2048, 4096, 8192)
DEPTHS = (0.9, 0.5, 0.1)  # deepest first: what lies before the sentence is then read once
NUMBERS = ("48213", "90571", "36804")  # one for each depth
FORMS = tuple(floors.NEEDLE_LOSS)
SCORE_S = 3600.0
FEWEST = 64  # tokens, that a side reads before it is asked
_ROOM = 16  # positions that are left empty at the end of the context


@dataclass(frozen=True)
class Needle:
    """One prompt, put to one form.

    Attributes:
        kv: The form. length: Tokens of the prompt. depth: Where the sentence lies, as a share of it.
        log_probability: Mean of the digits', in nats.
        found: Whether each digit was the likeliest token.
    """

    kv: str
    length: int
    depth: float
    log_probability: float
    found: bool


def prompts(side: Child, length: int) -> Iterator[tuple[float, list[int], list[int]]]:
    """Each depth, the prompt's token ids, and those of the digits that should follow."""

    def encode(text: str) -> list[int]:
        ids: list[int] = side.ask("tokenize", OPEN_S, text=text)["tokens"]
        return ids

    filler: list[int] = []
    documents = [encode(f"{path.read_text('utf-8')}\n\n") for path in sorted(DOCUMENTS.glob("*.txt"))]
    head = encode("<|im_start|>user\n")
    tail = encode(
        "\n\nWhat is the secret number mentioned in the text?<|im_end|>\n"
        "<|im_start|>assistant\nThe secret number is "
    )
    while len(filler) < length:
        filler += [token for document in documents for token in document]
    for depth, number in zip(DEPTHS, NUMBERS, strict=True):
        sentence, wanted = encode(f"\n\nThe secret number is {number}. Remember it.\n\n"), encode(number)
        room = length - len(head) - len(sentence) - len(tail) - len(wanted) - _ROOM
        if room < 0:
            raise ConfigurationError(
                f"a prompt of {length} tokens cannot be made",
                f"the sentence and the question alone are {length - room}",
                f"python -m bench.needle --lengths {length - room}",
            )
        at = int(room * depth)
        yield depth, head + filler[:at] + sentence + filler[at:room] + tail, wanted


def measure(model: Path, lengths: Sequence[int], forms: Sequence[str], isa: str | None) -> list[Needle]:
    """Put every prompt to every form."""
    found = []
    with tempfile.TemporaryDirectory(prefix="bench-needle-") as name, ExitStack() as stack:
        side = open_side("assay", Path(name), stack)
        for kv in forms:
            side.ask("open", OPEN_S, model=str(model), threads=2, context=max(lengths), isa=isa, kv=kv)
            for length in lengths:
                for depth, prompt, wanted in prompts(side, length):
                    answer = side.ask("score", SCORE_S, tokens=prompt, wanted=wanted)
                    mean = sum(answer["log_probabilities"]) / len(wanted)
                    found.append(Needle(kv, length, depth, mean, answer["likeliest"] == wanted))
                    say(line(found[-1]))
    return found


def losses(found: Sequence[Needle]) -> dict[str, float]:
    """How much worse each form's mean log-probability of a digit is than that of the halves."""
    means = {kv: _mean([each for each in found if each.kv == kv]) for kv in {each.kv for each in found}}
    return {kv: means[FORMS[0]] - mean for kv, mean in means.items()}


def held(found: Sequence[Needle]) -> bool:
    """Whether every form is within its bound."""
    return all(loss <= floors.NEEDLE_LOSS[kv] for kv, loss in losses(found).items())


def _mean(found: Sequence[Needle]) -> float:
    return sum(each.log_probability for each in found) / len(found)


def line(each: Needle) -> str:
    """One prompt on the screen."""
    return (
        f"{each.kv:5} {each.length:5} tokens, at {each.depth:.0%}: "
        f"{each.log_probability:.3f} nats a digit, {'found' if each.found else 'not found'}"
    )


def markdown(command: str, found: Sequence[Needle]) -> str:
    """The section of bench/RESULTS.md."""
    rows = []
    loss = losses(found)
    for kv in dict.fromkeys(each.kv for each in found):
        for length in dict.fromkeys(each.length for each in found):
            cell = [each for each in found if (each.kv, each.length) == (kv, length)]
            hits = sum(each.found for each in cell)
            rows.append([kv, f"{length:,}", f"{hits} of {len(cell)}", f"{_mean(cell):.3f}", ""])
        rows.append(
            [kv, "all", "", f"{_mean([each for each in found if each.kv == kv]):.3f}", f"{loss[kv]:.3f}"]
        )
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return "\n".join(
        [
            "## A number in a long prompt",
            "",
            f"`{command}`, {stamp}. {machine.describe().cpu}. {MODEL}; the sentence at "
            f"{', '.join(f'{depth:.0%}' for depth in DEPTHS)} of the prompt; log-probability in nats a digit "
            f"(chance: -2.303); loss against halves, bounds "
            f"{', '.join(f'{kv} {bound}' for kv, bound in floors.NEEDLE_LOSS.items())}.",
            "",
            table(["keys and values", "tokens", "found", "log-probability", "loss"], rows),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, judge, print; the exit code."""
    out = bench_parser("needle", "A number found again in a long prompt, for each form of KV.")
    out.add_argument("--model", type=Path, help=f"a GGUF file with ChatML (default: {MODEL}, verified)")
    out.add_argument(
        "--lengths", type=whole(FEWEST), nargs="+", default=list(LENGTHS), help="tokens of the prompts"
    )
    out.add_argument("--kv", nargs="+", choices=FORMS[1:], default=list(FORMS[1:]), help="beside f16")
    out.add_argument("--isa", help="our instruction set (default: the best here)")
    options = out.parse_args(arguments)
    try:
        forms = [FORMS[0], *options.kv]
        found = measure(options.model or verify(MODEL), options.lengths, forms, options.isa)
    except AssayError as error:
        complain(error)
        return error.exit_code
    except SideError as error:
        complain(PrerequisiteError("the engine could not be measured", str(error), "python -m bench.needle"))
        return PrerequisiteError.exit_code
    passed = held(found)
    for kv, loss in losses(found).items():
        say(f"{kv:5} loses {loss:.3f} nats a digit against halves (bound {floors.NEEDLE_LOSS[kv]})")
    say(f"{'pass' if passed else 'FAIL'}  every form of keys and values beside halves")
    if options.write:
        write_section("needle", markdown(f"python -m bench.needle {' '.join(sys.argv[1:])}".strip(), found))
    if options.json:
        results = [asdict(each) for each in found]
        print(json.dumps({"met": passed, "losses": losses(found), "results": results}, allow_nan=False))
    return 0 if passed else 5


if __name__ == "__main__":
    sys.exit(main())
