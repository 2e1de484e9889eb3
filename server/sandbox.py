"""The Jinja environment that a model file's chat template is compiled and rendered in.

The template is data from anywhere. Jinja's immutable sandbox keeps it from attributes and mutation; this one
also keeps `**` and `*` from numbers and texts that would fill the memory, already while it compiles: Jinja
computes constant expressions then, but leaves intercepted operators alone.

What Jinja would import only when a template needs it is imported here: a request opens no file.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import jinja2
import jinja2.constants
import jinja2.debug
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from server.errors import MISSING_DEPENDENCY, StartError
from server.vocabulary import shown

MOST_BITS = 4096  # of a power
MOST_ITEMS = 1 << 20  # of a repeated text or list


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox with template authors' options, and bounded arithmetic."""

    intercepted_binops = frozenset({"**", "*"})

    def __init__(self) -> None:
        """Make it with the options that chat templates rely on."""
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute `left ** right` or `left * right`; SecurityError when the result would be huge."""
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * right > MOST_BITS:
                raise SecurityError("a power of more than 4096 bits")
        elif operator == "*":
            for one, other in ((left, right), (right, left)):
                if isinstance(one, Sized) and isinstance(other, int) and len(one) * other > MOST_ITEMS:
                    raise SecurityError("a text or list repeated past a million items")
        return super().call_binop(context, operator, left, right)

    def compiled(self, source: str) -> jinja2.Template:
        """Compile a model file's template; StartError with Jinja's or Python's own words when it is none."""
        try:
            return self.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            why = f"line {error.lineno}: {shown(error.message)}"
            raise _no_template(why) from error
        except Exception as error:  # Python's compiler has limits of its own: nesting, blocks, constants
            raise _no_template(f"{type(error).__name__}: {shown(str(error))}") from error


def _no_template(why: str) -> StartError:
    return StartError(
        "the model's chat template is no Jinja template",
        why,
        "use a model file with a valid tokenizer.chat_template",
        MISSING_DEPENDENCY,
    )
