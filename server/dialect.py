"""How a model writes, as its chat template shows: thinking, and calls of tools.

Read once, when the model is loaded; for each request it gives the `Layout` by which answers are divided.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from server.reply import Layout, Thinking, find_thinking
from server.tokenizer import Tokenizer
from server.toolformat import Tool, ToolFormat, find_format


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a model's answers may hold beside content."""

    thinking: tuple[str, str] | None = None  # the marks around thinking
    form: ToolFormat | None = None  # None: the template has no tools, or writes calls in an unknown form
    tools: bool = False  # whether the template shows tools to the model
    effort: bool = False  # whether the template reads `reasoning_effort`
    spelt: dict[int, bytes] = field(default_factory=dict)  # control tokens that are marks, as text
    thinking_token: int | None = None  # the one token that opens thinking, if one does

    @classmethod
    def read(cls, template: str, tokenizer: Tokenizer) -> Dialect:
        """Return the dialect of a chat template."""
        thinking, form = find_thinking(template), find_format(template)
        marks = "".join(thinking or ())
        if form is not None:
            parts = (form.begin, form.end, form.head, form.first, form.middle, form.last, form.tail)
            marks += "".join(parts)
        ids = {token: tokenizer.spelling(token) for token in tokenizer.control_ids}
        return cls(
            thinking=thinking,
            form=form,
            tools="tools" in template,
            effort="reasoning_effort" in template,
            spelt={token: name for token, name in ids.items() if name.decode() in marks},
            thinking_token=tokenizer.single(thinking[0]) if thinking else None,
        )

    def layout(
        self, rendered: str, prompt: Sequence[int], tools: Sequence[Tool], *, one_call: bool
    ) -> Layout:
        """Return how the answers to a prompt are divided.

        Args:
            rendered: the prompt's text, whose end tells whether thinking is open.
            prompt: its tokens.
            tools: those that may be called.
            one_call: an answer ends with its first section of calls.
        """
        thinking = None
        if self.thinking is not None:
            begin, end = self.thinking
            # After a block that the template closed itself, nothing but content comes.
            if not rendered.rstrip().endswith(end):
                opened = rendered.rstrip().endswith(begin)
                thinking = Thinking(begin.encode(), end.encode(), opened)
        form = self.form if tools else None
        if thinking is None and form is None:
            return Layout()
        salt = hashlib.sha256(np.asarray(prompt, np.int64).tobytes()).digest() if tools else b""
        return Layout(thinking, form, tools, one_call, salt, self.spelt, self.thinking_token)
