"""Where a target is, judged by its words: what its own model cannot tell without other modules."""

from __future__ import annotations

from collections.abc import Iterator

from assay.errors import ConfigurationError
from assay.models.pins import pins
from assay.names import nearest
from assay.run.address import check_url, place
from assay.suite.secret import VARIABLE
from assay.suite.target import Target


def placed(target: Target) -> Target:
    """The target with its addresses in their one spelling, and the name that a served model is asked by."""
    changed: dict[str, object] = {"base_url": tuple(url.rstrip("/") for url in target.base_url)}
    if target.serve is not None and not target.model:
        changed["model"] = target.serve
    return target.model_copy(update=changed)


def place_faults(target: Target) -> Iterator[str]:
    """What is wrong with where a target is, or how it is called; no message repeats a secret."""
    where = f"target.{target.name}"
    places = set()
    for url in target.base_url:
        try:
            places.add(place(check_url(url)))
        except ConfigurationError as error:
            yield f"{where}.base_url: {error.what}: {error.why}; {error.next}"
            return
    if len(places) < len(target.base_url):
        yield f"{where}.base_url: it names one endpoint twice"
    if target.model != target.model.strip() or not target.model.isprintable():
        yield f"{where}.model: it begins or ends with a space, or holds a character that cannot be seen"
    if target.api_key_env is not None and not VARIABLE.search(target.api_key_env):
        # A key in capitals would pass for a name, be saved, and be told as the variable that is not set.
        yield f"{where}.api_key_env: a key's variable is called so: its name ends in KEY, TOKEN or SECRET"
    if target.key_file is not None and not target.key_file.is_absolute():
        yield f"{where}.key_file: the path is not absolute"
    if target.serve is not None:
        known = pins()
        if target.serve not in known:
            yield f"{where}.serve: models.lock has no model {target.serve!r}; {nearest(target.serve, known)}"
        if target.model not in ("", target.serve):
            yield f"{where}.model: a served model is called by its name in models.lock; leave it out"
