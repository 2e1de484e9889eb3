"""Secrets that stand in a suite: each is refused, since a suite is saved in clear with every run.

Three things are looked for, at every depth and in comments too: names that hold secrets (`api_key`,
`Authorization`, any header), values that look like a service's key, and the values of this process's own
secret variables. It is a net and no proof: a password that looks like a word is not recognised. No message
repeats what was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from assay.suite.document import inside

ADVICE = (
    'keys stand in a variable (api_key_env = "NAME") or in a private file (key_file = "/absolute/path"), '
    "never in a suite"
)

# Compared without case, "-" and "_".
HEADERS = ("header", "headers")
NAMES = frozenset({"auth", "authorization", "bearer", "cookie", "credential", "credentials", "token"})
ENDINGS: tuple[str, ...] = (
    "apikey",
    "accesskey",
    "privatekey",
    "secret",
    "secretkey",
    "passphrase",
    "passwd",
    "password",
)
ENDINGS += ("accesstoken", "apitoken", "authtoken", "authorization", "bearertoken", "hftoken")

# How services write their keys, and where keys stand in addresses.
SHAPES: Mapping[str, re.Pattern[str]] = {
    "a service's key": re.compile(
        r"\b(?:sk|rk|pk)-[A-Za-z0-9_-]{8,}|\b(?:sk|rk)_(?:live|test)_\w{8,}|\bhf_[A-Za-z0-9]{16,}"
        r"|\bgh[opsur]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}|\bxox[abeprs]-[\w-]{8,}"
        r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bnvapi-[\w-]{16,}|\bgsk_\w{16,}|\bassay-[\w-]{32}\b"
    ),
    "a signed token": re.compile(r"\beyJ[\w-]{8,512}\.[\w-]{8,}\."),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "an authorization": re.compile(
        r"\b(?:Bearer|Basic)\s+(?=[\w.~+/-]{0,512}[\d=])[\w.~+/=-]{8,}", re.IGNORECASE
    ),
    "a user in an address": re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s/?#\"']*@", re.IGNORECASE),
    "a key in an address": re.compile(
        r"[?&;](?:api[_-]?key|key|(?:access|auth|api)?[_-]?token|sig|signature|secret|password|auth)=[^\s&\"']",
        re.IGNORECASE,
    ),
}
# What the file's own text may hold besides: a key that was commented out.
ASSIGNED = re.compile(
    r"\b(?:x-)?(?:api[_-]?key|authorization|password)\b[\"']?\s*[=:]\s*[\"']?[^\s\"',}\]]{6,}", re.IGNORECASE
)
RUN = re.compile(r"[A-Za-z0-9+/_-]{24,}")
LONG = 24  # letters and digits
MANY = 6  # of either case
MIXED = 0.45  # of neighbours are of two kinds; in base64 it is 0.62
VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS)$")
SHORTEST = 8


def secrets_in(value: Any, environ: Mapping[str, str], where: str = "") -> Iterator[str]:
    """Where a document's values hold what must not stand there, and what that is; never the secret itself.

    Args:
        value: The document, or a part of it.
        environ: This process's variables.
        where: The part's dotted name.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            if (told := told_by(key, environ)) is not None:
                yield f"{where or 'the file'}: a key of it is {told}"
            elif (told := named(key)) is not None:
                yield f"{inside(where, key)}: {told}"
            else:
                yield from secrets_in(item, environ, inside(where, key))
    elif isinstance(value, str):
        if (told := told_by(value, environ)) is not None:
            yield f"{where}: it holds {told}"
    elif isinstance(value, Sequence):
        for number, item in enumerate(value, 1):
            yield from secrets_in(item, environ, f"{where}[{number}]")


def secrets_in_text(text: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Lines of a file, comments included, that hold what must not stand there."""
    for number, line in enumerate(text.split("\n"), 1):
        if ASSIGNED.search(line):
            yield f"line {number}: it gives a key its value"
        elif (told := told_by(line, environ)) is not None:
            yield f"line {number}: it holds {told}"


def named(key: str) -> str | None:
    """Why a key's value would be a secret, by the key's name; None when it would not."""
    plain = re.sub(r"[^a-z0-9]", "", key.lower())
    if plain.endswith(HEADERS):
        return "headers are not taken, since any of them may hold a key"
    if plain in NAMES or plain.endswith(ENDINGS):
        return "its value would be a secret in clear"
    return None


def told_by(text: str, environ: Mapping[str, str]) -> str | None:
    """What kind of secret a text holds; None when it holds none that can be told."""
    for name, value in environ.items():
        if VARIABLE.search(name) and len(value) >= SHORTEST and value in text:
            return f"the value of the variable {name}"
    for what, shape in SHAPES.items():
        if shape.search(text):
            return what
    return "what looks like a random key" if any(map(_random, RUN.findall(text))) else None


def _random(run: str) -> bool:
    """Whether letters and digits follow each other as in base64, which no digest and no word does."""
    kinds = ["a" if c.islower() else "A" if c.isupper() else "0" for c in run if c.isalnum()]
    if len(kinds) < LONG or min(kinds.count("a"), kinds.count("A")) < MANY or "0" not in kinds:
        return False
    changes = sum(before != after for before, after in pairwise(kinds))
    return changes >= MIXED * (len(kinds) - 1)
