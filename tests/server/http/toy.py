"""A small deterministic engine with the real one's face, and the metadata of its byte-level model.

Its vocabulary is the 256 bytes and a few control tokens, so a test can read what it answers. After
`say:` in the last turn of the prompt it repeats the words that follow, byte by byte; otherwise its logits
are a hash of the slot's tokens, so that any two prompts, and any mix-up of slots, give other answers.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence

import numpy as np

from server.engine import Chunk, EngineError, StepResult
from server.tokenizer import byte_alphabet
from server.vocabulary import CONTROL, NORMAL

CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
START, END = 1, 2
FIRST_BYTE = len(CONTROLS)
VOCABULARY = FIRST_BYTE + 256

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'function' %}{{ raise_exception('no functions here') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    "{% if enable_thinking is defined %}{{ 'thinking=' ~ enable_thinking | tojson }}{% endif %}"
)


# The same model taught to think, to call tools, or both; its users say what it says.
THINKING = TEMPLATE + "{# <think></think> #}"
OPENED = TEMPLATE.replace("assistant\n' }}", "assistant\n<think>\n' }}") + "{# </think> #}"
TOOLS = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}{# <tool_call> #}"
    "{% for message in messages if message.tool_calls %}{{ message.tool_calls | tojson }}{% endfor %}"
    + TEMPLATE
)
EFFORT = TEMPLATE + "{% if reasoning_effort is defined %}effort={{ reasoning_effort }}{% endif %}"


def metadata(template: str | None = TEMPLATE) -> dict[str, object]:
    """GGUF metadata of the toy model."""
    alphabet = {byte: character for character, byte in byte_alphabet().items()}
    return {
        "general.architecture": "toy",
        "general.file_type": 0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*CONTROLS, *(alphabet[byte] for byte in range(256))],
        "tokenizer.ggml.token_type": [CONTROL] * len(CONTROLS) + [NORMAL] * 256,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": END,
        "tokenizer.ggml.bos_token_id": START,
        **({} if template is None else {"tokenizer.chat_template": template}),
    }


def ids(data: bytes) -> list[int]:
    return [FIRST_BYTE + byte for byte in data]


class ToyEngine:
    """The engine's face over a script; `gate` holds its steps back, `breaks` makes the next one fail."""

    def __init__(self, slots: int = 4, context: int = 256) -> None:
        self.slots = slots
        self.context = context
        self.vocabulary = VOCABULARY
        self.gate = threading.Event()
        self.gate.set()
        self.stepping = threading.Event()
        self.breaks = False
        self.read: threading.Event | None = None  # the twentieth step fails, once it is set
        self.batches: list[list[Chunk]] = []
        self._written: dict[int, list[int]] = {slot: [] for slot in range(slots)}

    def fork(self, source: int, slot: int, positions: int) -> None:
        assert 0 <= positions <= len(self._written[source]), "a fork of what is not there"
        self._written[slot] = self._written[source][:positions]

    def rewindable(self, slot: int) -> int:
        return 0

    def ahead(self, position: int) -> int:
        return self.context

    def step(self, chunks: Sequence[Chunk]) -> StepResult:
        self.stepping.set()
        self.gate.wait(30)
        self.batches.append(list(chunks))
        amid = self.read is not None and len(self.batches) == 20 and self.read.wait(30)
        if self.breaks or amid:
            self.breaks = False
            raise EngineError("the toy was told to break")
        assert len({chunk.slot for chunk in chunks}) == len(chunks), "a slot twice in a batch"
        rows: list[tuple[int, int]] = []
        logits: list[np.ndarray] = []
        for chunk in chunks:
            written = self._written[chunk.slot]
            assert chunk.position <= len(written), "a gap in a slot"
            del written[chunk.position :]
            for offset, token in enumerate(chunk.tokens):
                written.append(token)
                assert len(written) <= self.context, "past the context"
                last = offset == len(chunk.tokens) - 1
                if chunk.logits == "all" or (chunk.logits == "last" and last):
                    rows.append((chunk.slot, chunk.position + offset))
                    logits.append(row_after(written))
        stacked = np.array(logits, np.float32).reshape(len(rows), VOCABULARY)
        return StepResult(tuple(rows), stacked, stacked.argmax(axis=1).astype(np.int32))


def row_after(tokens: Sequence[int]) -> np.ndarray:
    """Logits after `tokens`: noise in [-1, 1), and the scripted token, if any, 20 above it."""
    seed = hashlib.sha256(repr(list(tokens)).encode()).digest()
    noise = np.random.default_rng(int.from_bytes(seed[:8], "little")).random(VOCABULARY) * 2 - 1
    scripted = _scripted(tokens)
    if scripted is not None:
        noise[scripted] += 20.0
    return noise.astype(np.float32)


def _scripted(tokens: Sequence[int]) -> int | None:
    says = ids(b"say:")
    tokens = list(tokens)
    at = next((i for i in range(len(tokens) - 4, -1, -1) if tokens[i : i + 4] == says), None)
    if at is None or END not in tokens[at:]:
        return None
    end = tokens.index(END, at)
    words = tokens[at + 4 : end]
    opening = [END, *ids(b"\n"), START, *ids(b"assistant\n")]
    if tokens[end : end + len(opening)] != opening:
        return None
    said = len(tokens) - end - len(opening)
    return words[said] if said < len(words) else END
