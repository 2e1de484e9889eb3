"""A target's key: in a variable that the suite names, or in a private file, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Mapping

from assay.errors import ConfigurationError
from assay.run.key import MAXIMUM_BYTES, Key, read_key
from assay.suite.secret import ADVICE
from assay.suite.suite import Suite
from assay.suite.target import Target

# A shorter key is a word, and may stand in a suite by chance.
SHORTEST_SECRET = 12


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


def refuse_own_keys(suite: Suite, text: str, environ: Mapping[str, str]) -> None:
    """Refuse a suite that holds the key of one of its targets: every run saves a suite in clear.

    Args:
        suite: The suite.
        text: Of its file, comments included; empty where it has none.
        environ: This process's variables.

    Raises:
        ConfigurationError: it holds one, or a key is missing (see `target_key`).
    """
    values = json.dumps(suite.model_dump(mode="json"), ensure_ascii=False)
    for target in suite.targets:
        key = target_key(target, environ)
        if key is None or len(key.reveal()) < SHORTEST_SECRET:
            continue
        spellings = (key.reveal(), json.dumps(key.reveal())[1:-1])
        if any(each in values or each in text for each in spellings):
            raise ConfigurationError(
                f'the suite {suite.name} holds the key of its target "{target.name}"',
                "a suite is saved in clear with every run",
                ADVICE,
            )
