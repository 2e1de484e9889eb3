"""What an answer may say: grammars compiled by llguidance, and one answer's walk through its grammar.

A grammar is text in llguidance's variant of Lark, with JSON schemas inline (server/toolformat.py and
`json_rule` write it). The library parses grammars and schemas and says which tokens may come next; nothing
of that is done here. Compiling is native code that walks whatever schema a client sends, and there are
schemas that it does not survive (a constant near -2**63, a multiple of 2**31): so each new
grammar is tried in a process of its own first, and then compiled here, one after the other, off the event
loop, with the library's limits on size and work, behind a cache. Where the system has no file or memory for
that process, the request is a 503 and nothing is said or kept of its grammar.

A greedy choice that the grammar takes costs one call; only when it is refused is the whole mask computed.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from server.errors import exhausted, invalid
from server.tokenizer import Tokenizer

MAX_GRAMMAR_CHARACTERS = 1 << 17
STACK_BYTES = 64 << 20  # of the thread that compiles; the trial had less, so that it fails first
TRIAL_CPU_SECONDS = 5
TRIAL_SECONDS = 60  # on a machine that has better things to do
TRIAL_BYTES = 4 << 30  # of address space
BEGUN = "begun"  # what the trial says when all that it needs is there, so that the rest is the grammar's
TRIAL = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({TRIAL_CPU_SECONDS}, {TRIAL_CPU_SECONDS + 1}))
resource.setrlimit(resource.RLIMIT_AS, ({TRIAL_BYTES}, {TRIAL_BYTES}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from llguidance import LLMatcher, LLTokenizer
sys.stdout.write("{BEGUN}")
sys.stdout.flush()
grammar = LLMatcher.grammar_from_lark(sys.stdin.buffer.read().decode())
LLMatcher(LLTokenizer("byte"), grammar, log_level=0).compute_bitmask()
"""
# The trial's vocabulary is the bytes: it has no token of a high number.
TOKEN = re.compile(r"<\[[0-9]+\]>")
# What the system says when it has no more for anybody, or for this process.
LACKS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
CACHED_GRAMMARS = 64
MAX_REASON = 500  # characters of the library's explanation that a client is shown

# Where JSON allows white space: one blank, or one line break and an indentation. A model that may write
# any amount of it can fill its whole budget with blanks.
WHITESPACE = r" |\n[ \t]{0,32}"

# What a schema bounds numbers with, and what in it is no schema.
LOWER, UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
DATA = ("const", "enum", "default", "examples")
LEAST, MOST = -(2**63), 2**63 - 1

Ids = NDArray[np.int64]


def json_rule(schema: object, param: str) -> str:
    """Return a schema as a rule's body; ApiError 400 for what is no schema object."""
    if schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise invalid(f"{param}: a JSON schema is an object", param)
    if "x-guidance" in schema:
        raise invalid(f"{param}: x-guidance is no keyword of JSON Schema", param)
    for key, bound in _bounds(schema):
        # The library counts in floats within 64 bits: a bound that is moved outwards would not hold.
        counted = min(max(int(float(bound)), LEAST), MOST)
        if counted < bound if key in LOWER else counted > bound:
            raise invalid(
                f"{param}: the schema's {key} {bound} cannot be followed: the library counts {counted}",
                param,
                "invalid_schema",
            )
    options = {"whitespace_pattern": WHITESPACE}
    return "%json " + json.dumps({"x-guidance": options, **schema}, ensure_ascii=True)


def _bounds(schema: object) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers of up to 300 digits that bound a number anywhere in a schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from _bounds(item)
    elif isinstance(schema, Mapping):
        for key, item in schema.items():
            if key in LOWER + UPPER and isinstance(item, int) and abs(item) < 10**300:
                yield key, item
            elif key not in DATA:
                yield from _bounds(item)


def literal(text: str, tokenizer: Tokenizer) -> str:
    """Return a text as a rule's body; names of control tokens in it stand for these tokens."""
    parts = []
    for piece in tokenizer.pieces(text):
        token = tokenizer.control_id(piece)
        if token is not None:
            parts.append(f"<[{token}]>")
        elif piece:
            parts.append(json.dumps(piece, ensure_ascii=False))
    return " ".join(parts)


class Grammar:
    """A compiled grammar; shared by the answers that follow it."""

    def __init__(self, matcher: LLMatcher, size: int) -> None:
        """Keep a matcher that has read nothing, for a vocabulary of `size` tokens."""
        self._matcher = matcher
        self._size = size

    def begin(self) -> Constraint:
        """Return a walk from the grammar's beginning."""
        return Constraint(self._matcher.deep_copy(), self._size)


class Constraint:
    """One answer's place in its grammar; used by one thread at a time."""

    def __init__(self, matcher: LLMatcher, size: int) -> None:
        """Walk with `matcher`."""
        self._matcher = matcher
        self._size = size

    def take(self, token: int) -> bool:
        """Go past `token` if it may come next; whether it may."""
        return self._matcher.try_consume_tokens([token]) == 1

    def allowed(self) -> Ids:
        """Return the ids that may come next, ascending.

        Raises:
            ApiError: none may, because the library gave up on the grammar's complexity.
        """
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        ids = np.flatnonzero(np.unpackbits(mask, count=self._size, bitorder="little"))
        if self._matcher.is_error() or not ids.size:
            reason = _short(self._matcher.get_error()) or self._matcher.stop_reason()
            raise invalid(f"the schema became too complex while it was followed: {reason}", "response_format")
        return ids

    @property
    def complete(self) -> bool:
        """Whether nothing more may follow."""
        return self._matcher.is_stopped()


class GrammarCompiler:
    """Compiles grammars for one tokenizer, off the event loop, and keeps the last ones."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Compile for `tokenizer`; building the library's view of it holds the interpreter for a while."""
        self._tokenizer = tokenizer
        self._library_tokenizer = LLTokenizer(
            TokenizerWrapper(_Vocabulary(tokenizer)),
            n_vocab=tokenizer.size,
            eos_token=sorted(tokenizer.ends),
        )
        self._cache: OrderedDict[str, Grammar | str] = OrderedDict()
        self._turn = asyncio.Lock()

    async def compile(self, grammar: str, param: str) -> Grammar:
        """Return the grammar compiled.

        Raises:
            ApiError: 400 with the library's reason, blamed on `param`, or 503 when the system lacks what the
                trial needs.
        """
        if len(grammar) > MAX_GRAMMAR_CHARACTERS:
            raise invalid(
                f"{param}: the schema is too large: {len(grammar)} characters, at most "
                f"{MAX_GRAMMAR_CHARACTERS}",
                param,
            )
        if grammar in self._cache:  # waits for nobody's trial
            self._cache.move_to_end(grammar)
            return _kept(self._cache[grammar], param)
        async with self._turn:
            found = self._cache.get(grammar)
            if found is None:
                found = await asyncio.to_thread(self._on_large_stack, grammar)
                self._cache[grammar] = found
                while len(self._cache) > CACHED_GRAMMARS:
                    self._cache.popitem(last=False)
            self._cache.move_to_end(grammar)
        return _kept(found, param)

    def _on_large_stack(self, grammar: str) -> Grammar | str:
        # The size holds for threads made from now on, of which this one is the only one wanted.
        with _STACK_SIZE:
            before = threading.stack_size(STACK_BYTES)
            try:
                pool = ThreadPoolExecutor(1, "grammar")
                future = pool.submit(self._compile, grammar)
            finally:
                threading.stack_size(before)
        with pool:
            return future.result()

    def _compile(self, grammar: str) -> Grammar | str:
        """Return the grammar, or the reason why there is none."""
        if failed := _trial(grammar):
            return failed
        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(
            self._library_tokenizer, LLMatcher.grammar_from_lark(grammar), log_level=0, limits=limits
        )
        if matcher.is_error():
            return f"the schema cannot be followed: {_short(matcher.get_error())}"
        # A grammar without any answer, such as a reference to itself, shows only with its first mask.
        trial = matcher.deep_copy()
        trial.compute_bitmask()
        if trial.is_error() or trial.is_stopped():
            return "no answer can satisfy the schema"
        return Grammar(matcher, self._tokenizer.size)


def _kept(found: Grammar | str, param: str) -> Grammar:
    if isinstance(found, str):
        raise invalid(f"{param}: {found}", param, "invalid_schema")
    return found


_STACK_SIZE = threading.Lock()


def _trial(grammar: str) -> str | None:
    """Compile a grammar, over bytes alone, in a process of its own.

    Returns why that does not come to its end, or None if it does; what the library finds is not asked.

    Raises:
        ApiError: 503, the process cannot be had.
    """
    what = "the schema cannot be tried just now"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", TRIAL],
            input=TOKEN.sub("<[1]>", grammar).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "the schema takes too long to compile"
    except OSError as error:
        if error.errno not in LACKS:
            raise
        raise exhausted(what, os.strerror(error.errno).lower()) from error
    if done.returncode and BEGUN.encode() not in done.stdout:
        raise exhausted(what, "its process ended before it began")
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"the schema takes more than {TRIAL_CPU_SECONDS} seconds to compile"
    return "the grammar library does not survive the schema" if done.returncode else None


def _short(reason: str) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= MAX_REASON else text[:MAX_REASON] + "..."


class _Vocabulary:
    """The tokenizer with the face that llguidance asks for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.tokens = [tokenizer.spelling(token) for token in range(tokenizer.size)]
        self.special_token_ids = sorted(tokenizer.control_ids)
        self.eos_token_id = min(tokenizer.ends, default=0)
        self.bos_token_id = None

    def __call__(self, text: bytes | str) -> list[int]:
        whole = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self._tokenizer.encode(whole)
