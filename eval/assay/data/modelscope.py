"""Dataset repositories of ModelScope, over its public API.

`MODELSCOPE_ENDPOINT` names another host that speaks the same, as for its own library (which is not used here:
it brings a cache of its own shape, and a session that follows whatever it is told to).
"""

from __future__ import annotations

import re
from typing import Any

import httpx

from assay.data.continued import PassingError
from assay.data.patience import Patience, retry_after_s
from assay.data.repository import Host, Listed, require_here
from assay.errors import AssayError, PrerequisiteError

PAGE = 200
LISTED = 20_000
LISTING_BYTES = 16 << 20
SHA256 = re.compile(r"[0-9a-f]{64}")


class ModelScope(Host):
    """See the module."""

    variable = "MODELSCOPE_ENDPOINT"
    default = "https://www.modelscope.cn"

    def address(self, repository: str, revision: str, path: str) -> httpx.URL:
        """Where a file of a commit is asked for."""
        query = {"Revision": revision, "FilePath": path}
        return httpx.URL(f"{self.endpoint}/api/v1/datasets/{repository}/repo", params=query)

    def git(self, repository: str) -> str:
        """Where the repository's Git is."""
        return f"{self.endpoint}/datasets/{repository}.git"

    def files(self, repository: str, revision: str, again: str) -> list[Listed]:
        """Every file of a commit.

        Raises:
            PrerequisiteError: the host cannot be reached, or what it lists cannot be read.
        """
        found: list[Listed] = []
        page = 0
        while len(found) < LISTED:
            page += 1
            entries = self._page(repository, revision, page, again)
            found += [each for each in map(listed, entries) if each is not None]
            if len(entries) < PAGE:
                return found
        raise PrerequisiteError(f"{repository} holds more than {LISTED} files", "", "pin it by hand")

    def _page(self, repository: str, revision: str, page: int, again: str) -> list[dict[str, Any]]:
        query: dict[str, str | int] = {
            "Revision": revision,
            "Recursive": "True",
            "PageNumber": page,
            "PageSize": PAGE,
        }
        patience = Patience(f"{repository}: its files")
        while True:
            asked = None
            try:
                answer = self._client.get(
                    f"{self.endpoint}/api/v1/datasets/{repository}/repo/tree", params=query
                )
                asked = retry_after_s(answer.headers)
                require_here(answer, f"{repository}: its files", revision, again)
                return entries_of(answer, repository, again)
            except httpx.TransportError as error:
                problem: AssayError = self._silent(error, again)
            except PassingError as error:
                problem = error
            patience.wait(problem, False, asked)


def entries_of(answer: httpx.Response, repository: str, again: str) -> list[dict[str, Any]]:
    """What a page lists; PrerequisiteError when it is nothing that can be read."""
    try:
        if len(answer.content) > LISTING_BYTES:
            raise ValueError("it is too long")
        data = answer.json()["Data"]
        entries = data["Files"] if isinstance(data, dict) else data
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise ValueError("it is no list of files")
    except (ValueError, KeyError, TypeError) as error:
        raise PrerequisiteError(f"what is told of {repository} cannot be read", repr(error), again) from error
    return entries


def listed(entry: dict[str, Any]) -> Listed | None:
    """A file of a listing; None for a folder, and for what has no path or no size."""
    path, size, digest = entry.get("Path"), entry.get("Size"), entry.get("Sha256")
    if entry.get("Type") == "tree" or not isinstance(path, str) or type(size) is not int:
        return None
    told = digest.lower() if isinstance(digest, str) else ""
    return Listed(path, size, told if SHA256.fullmatch(told) else None)
