"""The locked environments: made, brought up to date, and checked byte by byte.

`ensure` makes an environment or finds it whole; `check` hashes what is installed and says what differs. It
needs nothing but the standard library, since it runs before any environment exists.
"""

from assay.setup.build import ensure, ensure_all
from assay.setup.check import check, require
from assay.setup.environments import ENVIRONMENTS, Environment, EnvironmentState, named
from assay.setup.tool import installed as installed_uv

__all__ = [
    "ENVIRONMENTS",
    "Environment",
    "EnvironmentState",
    "check",
    "ensure",
    "ensure_all",
    "installed_uv",
    "named",
    "require",
]
