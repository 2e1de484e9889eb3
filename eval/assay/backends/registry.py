"""The backends by name; a backend's module is imported when it is first asked for."""

from __future__ import annotations

import importlib
from functools import cache
from typing import cast

from assay.backends.base import Backend
from assay.errors import ConfigurationError
from assay.names import nearest

_PLACES = {
    "evalscope": ("assay.backends.evalscope", "EvalScope"),
    "inspect": ("assay.backends.inspect", "Inspect"),
    "mock": ("assay.backends.mock", "Mock"),
    "verifiers": ("assay.backends.verifiers", "Verifiers"),
}
NAMES = tuple(sorted(_PLACES))


@cache
def find(name: str) -> Backend:
    """The backend of that name.

    Raises:
        ConfigurationError: there is none.
    """
    try:
        module, attribute = _PLACES[name]
    except KeyError:
        raise ConfigurationError(
            f'there is no backend "{name}"', nearest(name, NAMES), "name one of them in the job"
        ) from None
    return cast("Backend", getattr(importlib.import_module(module), attribute)())
