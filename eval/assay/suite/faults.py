"""Tables of a suite as values, and what is wrong with one: each fault by its dotted name, never its value.

Types are strict: "4" and true are no numbers, 2.5 is no count. An unknown key is told with the nearest one of
the same table, or with the table that has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError

from assay.names import nearest
from assay.suite.document import inside

Value = TypeVar("Value", bound=BaseModel)


class FaultyError(ValueError):
    """What is wrong with a table, fault by fault."""

    def __init__(self, found: Sequence[str]) -> None:
        super().__init__("; ".join(found))
        self.found = tuple(found)


def build(model: type[Value], table: object, where: str) -> Value:
    """The table as a value.

    Args:
        model: What it is to be.
        table: What the document says.
        where: Its place in the document, before each fault.

    Raises:
        FaultyError: it is not of the model's form.
    """
    if not isinstance(table, Mapping):
        raise FaultyError([f"{where}: it is {kind(table)}, and a table belongs there"])
    try:
        # As JSON, in which a list may become a tuple and a text a path while everything else stays strict.
        return model.model_validate_json(json.dumps(table, allow_nan=False), strict=True)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise FaultyError(
            [_told(model, item["type"], item["loc"], item["msg"], where) for item in faults]
        ) from None


def unknown(key: str, model: type[BaseModel], keys: Sequence[str]) -> str:
    """What to say about a key that a table does not have.

    Args:
        key: The key.
        model: The table's model, whose inner tables may have it.
        keys: Those that belong there.
    """
    owners = [name for name, inner in _inner(model).items() if key in inner.model_fields and name in keys]
    if owners:
        return f"unknown key; it belongs into {owners[0]}"
    return f"unknown key; {nearest(key, keys)}"


def kind(value: object) -> str:
    """What a value of a document is, in TOML's words."""
    if isinstance(value, str):
        return "a text"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    return "a table" if isinstance(value, Mapping) else "a list"


def _told(model: type[BaseModel], type_: str, loc: tuple[int | str, ...], message: str, where: str) -> str:
    place = where
    for part in loc:
        place = f"{place}[{part + 1}]" if isinstance(part, int) else inside(place, part)
    if type_ == "extra_forbidden":
        table = _table(model, loc[:-1])
        return f"{place}: {unknown(str(loc[-1]), table, sorted(table.model_fields))}"
    if type_ == "missing":
        return f"{place} is missing"
    return f"{place}: {message.removeprefix('Value error, ')}"


def _table(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel]:
    """The model of the table that a fault's place lies in."""
    for part in loc:
        model = _inner(model).get(str(part), model)
    return model


def _inner(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The tables in a table, by key."""
    found = {}
    for name, field in model.model_fields.items():
        for choice in (field.annotation, *get_args(field.annotation)):
            if isinstance(choice, type) and issubclass(choice, BaseModel):
                found[name] = choice
    return found
