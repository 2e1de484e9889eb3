"""A target's key: in a variable that the suite names, or in a private file, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

from assay.errors import ConfigurationError
from assay.run.key import MAXIMUM_BYTES, Key, read_key
from assay.suite.target import Target


def target_key(target: Target, environ: Mapping[str, str]) -> Key | None:
    """The key of a target; None for an open endpoint, a model that the run serves, or where nobody is asked.

    Raises:
        ConfigurationError: the variable is not set or holds no key, or the file cannot be used.
    """
    if target.key_file is not None:
        return read_key(target.key_file)
    if target.api_key_env is None:
        return None
    value = environ.get(target.api_key_env, "")
    if not value:
        raise ConfigurationError(
            f'the key of the target "{target.name}" is missing',
            f"the variable {target.api_key_env} is not set",
            f"read -rs {target.api_key_env} && export {target.api_key_env}; or name a private file: key_file",
        )
    if len(value) > MAXIMUM_BYTES or not all("!" <= character <= "~" for character in value):
        raise ConfigurationError(
            f'the key of the target "{target.name}" cannot be used',
            f"the variable {target.api_key_env} holds no visible ASCII, or over {MAXIMUM_BYTES} bytes",
            "set it to the key and nothing else",
        )
    return Key(value)
