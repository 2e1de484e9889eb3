"""Files of GitHub's repositories, by commit, where they are wanted by their names.

`ASSAY_GITHUB_ENDPOINT` names another host that serves `/OWNER/NAME/raw/COMMIT/PATH` and Git, over TLS or on
this machine.
"""

from __future__ import annotations

from urllib.parse import quote

import httpx

from assay.data.repository import Host, Listed


class GitHub(Host):
    """See the module."""

    variable = "ASSAY_GITHUB_ENDPOINT"
    default = "https://github.com"

    def address(self, repository: str, revision: str, path: str) -> httpx.URL:
        """Where a file of a commit is asked for."""
        return httpx.URL(f"{self.endpoint}/{repository}/raw/{revision}/{quote(path)}")

    def git(self, repository: str) -> str:
        """Where the repository's Git is."""
        return f"{self.endpoint}/{repository}.git"

    def files(self, repository: str, revision: str, again: str) -> list[Listed] | None:
        """None: what is wanted is named."""
        return None
