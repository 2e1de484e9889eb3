"""Whatever a document says, it is a suite or refused: nothing else is raised, no secret is repeated."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from written import WHOLE

from assay.errors import ConfigurationError
from assay.suite.assemble import assemble
from assay.suite.check import check_suite, plan_suite
from assay.suite.document import unfit
from assay.suite.faults import FaultyError
from assay.suite.secret import secrets_in
from assay.suite.suite import Suite

CANARY = "canary-of-a-secret-0451"
scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a document, tables and lists included."""
    items: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in items:
        yield (*at, key)
        yield from places(item, (*at, key))


EVERYWHERE = sorted(places(dict(WHOLE)), key=str)


def put(place: tuple[str | int, ...], item: object) -> dict[str, Any]:
    """The whole suite with that in that place."""
    whole = copy.deepcopy(dict(WHOLE))
    table: Any = whole
    for part in place[:-1]:
        table = table[part]
    table[place[-1]] = item
    return whole


def judged(value: Mapping[str, Any]) -> Suite | None:
    """The suite, wholly judged; None where it is refused in one of the ways that a user is told."""
    if list(unfit(value)) or list(secrets_in(value, {})):
        return None
    try:
        suite = assemble(value, "try", None)
        check_suite(suite)
    except (FaultyError, ConfigurationError):
        return None
    plan_suite(suite)
    return suite


@settings(max_examples=300)
@given(st.sampled_from(EVERYWHERE), values)
def test_anything_in_any_place_is_taken_or_refused(place: tuple[str | int, ...], item: object) -> None:
    suite = judged(put(place, item))
    if suite is not None:
        assert Suite.model_validate_json(suite.model_dump_json()) == suite
        assert len(suite.digest) == 64


@given(st.dictionaries(st.sampled_from([*WHOLE, "other"]), values))
def test_anything_as_a_document_is_taken_or_refused(value: dict[str, Any]) -> None:
    judged(value)


@given(st.sampled_from(EVERYWHERE), st.text(max_size=5), st.text(max_size=5))
def test_a_secret_variables_value_is_found_in_any_place_and_never_repeated(
    place: tuple[str | int, ...], before: str, after: str
) -> None:
    text = f"{before}{CANARY}{after}"
    for item in (text, [text], {"of": {"it": text}}, {text: 1}):
        found = list(secrets_in(put(place, item), {"SOME_TOKEN": CANARY}))
        assert found
        assert not any(CANARY in line for line in found)
