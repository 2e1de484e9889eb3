"""The model's own chat template, rendered in a sandbox, with users' words kept apart from its markup.

The template comes with the model file, which is data: it runs in jinja2's immutable sandbox with the
options and functions that template authors rely on (`trim_blocks`, `lstrip_blocks`, `raise_exception`,
`strftime_now`, a `tojson` that leaves Unicode alone).

A user who writes `<|im_end|>` must not end his own turn. llama.cpp's server reads control tokens in the
whole rendered prompt, users' words included; here a name of a control token inside a message is broken up
before rendering by a *guard*, a Unicode noncharacter that occurs nowhere in the request, and the tokenizer
drops the guard while it reads the broken name as plain text. Text without such names is not touched.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import jinja2

from server.errors import invalid
from server.sandbox import TemplateSandbox

# Noncharacters: valid in a Python string and in UTF-8, never assigned, so no text needs them.
GUARDS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as text, and the guard character to drop from it when there is one."""

    text: str
    guard: str | None


class ChatTemplate:
    """A compiled chat template and the control-token names that users' words must not forge."""

    def __init__(self, source: str, control_names: Iterable[str], variables: Mapping[str, str]) -> None:
        """Compile `source`; StartError when it is not a template.

        Args:
            source: Jinja text from `tokenizer.chat_template`.
            control_names: spellings of the control tokens.
            variables: always present in the template, such as `bos_token`.
        """
        environment = TemplateSandbox()
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._template = environment.compiled(source)
        self.source = source
        self._names = sorted(control_names, key=len, reverse=True)
        self._variables = dict(variables)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        variables: Mapping[str, object],
        *,
        tools: Sequence[Mapping[str, object]] = (),
        add_generation_prompt: bool = True,
    ) -> Rendered:
        """Return the prompt for `messages`; ApiError 400 with the template's own words when it refuses.

        Args:
            messages: role, content and whatever else the template may read, as plain JSON values.
            variables: the request's `chat_template_kwargs`.
            tools: the functions that may be called, as the client described them.
            add_generation_prompt: end with the opening of the assistant's turn.
        """
        request: list[object] = [list(messages), dict(variables), list(tools)]
        guard = self._guard(request)
        if guard is not None:
            request = [self._broken(part, guard) for part in request]
        given, extra, described = request
        try:
            text = self._template.render(
                {
                    **self._variables,
                    "documents": None,
                    **(extra if isinstance(extra, dict) else {}),
                    "tools": described or None,
                    "messages": given,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        except Exception as error:  # whatever it raises, it is what the template makes of these messages
            reason = str(error) or type(error).__name__
            if guard is not None:
                reason = reason.replace(guard, "")
            raise invalid(f"the chat template refused the messages: {reason}", "messages") from error
        return Rendered(text, guard)

    def _guard(self, request: object) -> str | None:
        text = "\0".join(_strings(request))
        if not any(name in text for name in self._names):
            return None
        free = next((guard for guard in GUARDS if guard not in text), None)
        if free is None:
            raise invalid("the messages use every Unicode noncharacter from U+FDD0 to U+FDEF", "messages")
        return free

    def _broken(self, value: object, guard: str) -> object:
        if isinstance(value, str):
            for name in self._names:
                value = value.replace(name, name[:1] + guard + name[1:])
            return value
        if isinstance(value, Mapping):
            return {self._broken(key, guard): self._broken(item, guard) for key, item in value.items()}
        if isinstance(value, Sequence):
            return [self._broken(item, guard) for item in value]
        return value


def _strings(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _strings(item)


def _to_json(value: object, indent: int | None = None, ensure_ascii: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    # Local time, as template authors expect of this function.
    return datetime.datetime.now().astimezone().strftime(pattern)
