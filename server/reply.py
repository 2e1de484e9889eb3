"""From an answer's bytes to thinking, content and calls of tools.

`Layout` says what an answer of one request may hold: a block of thinking at its beginning, which the
template may have opened already, and sections of tool calls. `Reply` divides the bytes as they come. A mark
is found wherever it straddles tokens, stop strings count only in the content, and whatever is neither
thinking nor a well-formed section of calls is content: nothing is lost.

A section of calls is held back until it is whole: a call that turns out to be none could not be taken back.
White space at the ends of the thinking, before the content that follows it, and after calls is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType

from server.textstream import TextStream
from server.toolcalls import ToolCall, call_id, parse_calls
from server.toolformat import Tool, ToolFormat

# How models open and close their thinking; which pair is a template's is read off its text.
THINKING_MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)


@dataclass(frozen=True, slots=True)
class Thinking:
    """The marks around thinking, and whether the prompt ends with the opening one."""

    begin: bytes
    end: bytes
    opened: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """What an answer may hold beside content."""

    thinking: Thinking | None = None
    form: ToolFormat | None = None  # None: calls are not looked for
    tools: Sequence[Tool] = ()
    one_call: bool = False  # the answer ends with its first section of calls
    salt: bytes = b""  # tells the prompts apart in calls' ids
    spelt: Mapping[int, bytes] = field(default_factory=lambda: MappingProxyType({}))  # control tokens as text
    thinking_token: int | None = None  # the one token that opens thinking, if one does

    @property
    def plain(self) -> bool:
        """Whether there is only content."""
        return self.thinking is None and self.form is None


class _Part(Enum):
    OPENING = auto()  # nothing but white space so far: thinking, a bare call or content may begin
    THINKING = auto()
    CONTENT = auto()
    CALLS = auto()


def find_thinking(template: str) -> tuple[str, str] | None:
    """Return the marks that a chat template knows, or None."""
    return next(((begin, end) for begin, end in THINKING_MARKS if end in template), None)


class Reply:
    """One answer in parts; `feed` a token's bytes, then take `reasoning` and `calls` beside the text."""

    def __init__(self, layout: Layout, stops: Sequence[bytes]) -> None:
        """Start an empty answer; `stops` end its content."""
        self._layout = layout
        self._stops = tuple(stops)
        self._marks = tuple(stops) + ((layout.form.begin.encode(),) if layout.form else ())
        self._held = b""  # of the opening or of a section of calls
        self._before = 0  # bytes let go before the present stream's
        self._stream = TextStream()
        self._strip = False  # white space is dropped until a character comes
        self._blank = ""  # white space of the thinking that may turn out to be its end
        self._begin = b""  # the mark that opened the section of calls; none opens a bare one
        self._may_think = layout.thinking is not None
        self._calls = 0
        self._reasoning: list[str] = []
        self._made: list[ToolCall] = []
        self.stopped = False
        self._part = _Part.OPENING
        if layout.thinking is not None and layout.thinking.opened:
            self._think()
        elif layout.thinking is None:
            self._begin_content(strip=False)

    @property
    def released(self) -> int:
        """The number of bytes that were let go, marks included."""
        return self._before + self._stream.released

    @property
    def thinking(self) -> bool:
        """Whether the next byte belongs to the thinking."""
        return self._part is _Part.THINKING

    @property
    def undecided(self) -> bool:
        """Whether thinking may still begin."""
        return self._part is _Part.OPENING and self._may_think

    @property
    def called(self) -> bool:
        """Whether any call was made."""
        return self._calls > 0

    def take_reasoning(self) -> str:
        """Return the thinking that is new since the last time."""
        out = "".join(self._reasoning)
        self._reasoning.clear()
        return out

    def take_calls(self) -> tuple[ToolCall, ...]:
        """Return the calls that are new since the last time."""
        out = tuple(self._made)
        self._made.clear()
        return out

    def feed(self, data: bytes) -> str:
        """Add a token's bytes and return the content that is now certain; sets `stopped` at the end."""
        out = []
        while True:
            text, data, again = self._advance(data)
            out.append(text)
            if not again or self.stopped:
                return "".join(out)

    def finish(self) -> str:
        """Return the content that was held back for a mark that never came."""
        if self.stopped:
            return ""
        if self._part is _Part.OPENING:
            text = self._open(final=True)
            return text + (self.finish() if self._part is not _Part.OPENING else "")
        if self._part is _Part.THINKING:
            self._reason(self._stream.finish())
            return ""
        if self._part is _Part.CALLS:
            return self._close_section(self._held, b"" if self._ends_open else None)
        return self._shown(self._stream.finish())

    @property
    def _ends_open(self) -> bool:
        return self._layout.form is not None and not self._layout.form.end

    def _advance(self, data: bytes) -> tuple[str, bytes, bool]:
        """Read `data` in the present part; returns content, the bytes left, and whether to go on."""
        if self._part is _Part.OPENING:
            self._held += data
            text = self._open(final=False)
            return text, b"", False
        if self._part is _Part.CALLS:
            return self._collect(data)
        text = self._stream.feed(data)
        if self._part is _Part.THINKING:
            self._reason(text)
            text = ""
        else:
            text = self._shown(text)
        if not self._stream.stopped:
            return text, b"", False
        stop, rest = self._stream.stop, self._stream.rest
        if self._part is _Part.THINKING:
            self._before += self._stream.released + len(stop)
            self._blank = ""
            self._begin_content(strip=True)
        elif stop in self._stops:
            self.stopped = True
        else:
            self._before += self._stream.released
            self._stream = TextStream()
            self._held, self._begin, self._part = b"", stop, _Part.CALLS
        return text, rest, True

    def _open(self, *, final: bool) -> str:
        """Decide what begins, if that can be known, and read on."""
        thinking = self._layout.thinking if self._may_think else None
        bare = self._layout.form is not None and self._layout.form.bare
        begun = self._held.lstrip()
        begins = [thinking.begin] if thinking else []
        if bare:
            begins.append(b"{")
        if not final and any(begin.startswith(begun) and begin != begun for begin in begins):
            return ""
        held, self._held = self._held, b""
        if thinking and begun.startswith(thinking.begin):
            self._before += len(held) - len(begun) + len(thinking.begin)
            self._think()
            return self.feed(begun[len(thinking.begin) :])
        if bare and begun.startswith(b"{"):
            self._begin, self._part = b"", _Part.CALLS
        else:
            self._talk(strip=self._strip)
        return self.feed(held)

    def _think(self) -> None:
        thinking = self._layout.thinking
        self._stream = TextStream((thinking.end,) if thinking else ())
        self._strip, self._may_think, self._part = True, False, _Part.THINKING

    def _begin_content(self, *, strip: bool) -> None:
        if self._layout.form is not None and self._layout.form.bare:
            self._stream, self._strip, self._part = TextStream(), strip, _Part.OPENING
        else:
            self._talk(strip=strip)

    def _talk(self, *, strip: bool) -> None:
        self._stream = TextStream(self._marks)
        self._strip, self._part = strip, _Part.CONTENT

    def _reason(self, text: str) -> None:
        text = self._blank + (text.lstrip() if self._strip else text)
        kept = text.rstrip()
        self._blank = text[len(kept) :]
        if kept:
            self._strip = False
            self._reasoning.append(kept)

    def _shown(self, text: str) -> str:
        if self._strip:
            text = text.lstrip()
            self._strip = not text
        return text

    def _collect(self, data: bytes) -> tuple[str, bytes, bool]:
        """Add to a section of calls; at its end parse it."""
        self._held += data
        form = self._layout.form
        end = form.end.encode() if form else b""
        # Only the new bytes and what may straddle them need a search.
        at = self._held.find(end, max(0, len(self._held) - len(data) - len(end))) if end else -1
        if at < 0:
            return "", b"", False
        section, rest = self._held[:at], self._held[at + len(end) :]
        return self._close_section(section, end), rest, True

    def _close_section(self, section: bytes, end: bytes | None) -> str:
        """Make calls of a section, or content when it holds anything else; `end` None: it is cut off."""
        layout, form = self._layout, self._layout.form
        if form is None:
            return ""
        begin = self._begin
        calls = None
        if end is not None:
            calls = parse_calls(form, layout.tools, section.decode("utf-8", "replace"))
        self._held = b""
        self._before += len(begin) + len(section) + len(end or b"")
        self._talk(strip=bool(calls))
        if not calls:
            shown = TextStream()
            return shown.feed(begin + section + (end or b"")) + shown.finish()
        for call in calls[:1] if layout.one_call else calls:
            ident = call_id(form, layout.salt, self._calls, call)
            self._made.append(ToolCall(call.name, call.arguments, ident, self._calls))
            self._calls += 1
        self.stopped = layout.one_call
        return ""
