"""Whether an environment's packages have what they require, where some of it is left out on purpose.

uv's own check knows no exceptions. So where an `evaluator.toml` names what is `absent`, the environment's own
Python reads the metadata of what is installed, with the `packaging` of the build group, and exactly those
requirements may be unmet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from assay.errors import PrerequisiteError
from assay.paths import relative
from assay.setup import tool
from assay.setup.environments import Environment
from assay.setup.installed import normalised

UNMET = """
import importlib.metadata, json
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

here = {canonicalize_name(found.name): found for found in importlib.metadata.distributions()}
asked, seen, unmet = [(name, "") for name in here], set(), []
while asked:
    name, extra = asked.pop()
    if (name, extra) in seen or name not in here:
        continue
    seen.add((name, extra))
    for text in here[name].requires or ():
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        found = canonicalize_name(wanted.name)
        if found not in here or not wanted.specifier.contains(here[found].version, prereleases=True):
            unmet.append([found, f"{name} requires {text}"])
        asked += [(found, option) for option in wanted.extras]
print(json.dumps(sorted(unmet)))
"""


def require_consistent(environment: Environment, runner: tool.Runner, variables: Mapping[str, str]) -> None:
    """Hold every requirement against what is installed.

    Args:
        environment: An environment with absent distributions, its packages installed.
        runner: Runs the environment's Python.
        variables: That Python's whole environment.

    Raises:
        PrerequisiteError: something is missing that should be there, or there that should be absent.
    """
    description = relative(environment.requirements_lock.parent / "evaluator.toml")
    again = f"make requirements.in, excludes.in and absent in {description} agree, and lock again"
    doing = f"{environment.name}: the requirements of its packages could not be read"
    found = json.loads(runner.run([environment.python, "-I", "-B", "-c", UNMET], variables, doing, again))
    absent = {normalised(name) for name in environment.absent}
    wrong = [text for name, text in found if name not in absent]
    wrong += [
        f"nothing misses {name}, which is said to be absent" for name in absent - {item[0] for item in found}
    ]
    if wrong:
        raise PrerequisiteError(
            f"{environment.name}: its packages are not consistent", "\n        ".join(wrong), again
        )
