"""The stand-in for the hub is a hub to the hub's own library: what is tested against it is the real API."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_site import FILES, REVISION, TABLE, Site
from huggingface_hub import HfApi, RepoFile, RepoFolder, hf_hub_download, snapshot_download
from huggingface_hub.errors import GatedRepoError, RevisionNotFoundError

from hub_standin import HubStandIn, git_sha1, sha256


@pytest.fixture
def api(site: Site, hub: HubStandIn) -> HfApi:
    """The library's face of a hub that holds one dataset."""
    hub.add("org/tiny", REVISION, FILES)
    return HfApi(endpoint=hub.url, token=False)


def test_information_names_commit_files_sizes_and_digests(api: HfApi) -> None:
    found = api.dataset_info("org/tiny", revision=REVISION, files_metadata=True)
    assert found.sha == REVISION
    siblings = {item.rfilename: item for item in found.siblings or []}
    assert siblings["README.md"].blob_id == git_sha1(FILES["README.md"])
    assert siblings[TABLE].lfs is not None
    assert siblings[TABLE].lfs.sha256 == sha256(FILES[TABLE])
    assert siblings[TABLE].size == len(FILES[TABLE])


def test_the_tree_has_folders_and_files(api: HfApi) -> None:
    top = list(api.list_repo_tree("org/tiny", repo_type="dataset"))
    assert {(type(item), item.path) for item in top} == {(RepoFile, "README.md"), (RepoFolder, "data")}
    whole = list(api.list_repo_tree("org/tiny", repo_type="dataset", recursive=True))
    assert {item.path for item in whole} == {"README.md", "data", TABLE}
    below = list(api.list_repo_tree("org/tiny", "data", repo_type="dataset"))
    assert [item.path for item in below] == [TABLE]


def test_a_whole_snapshot_can_be_taken(api: HfApi, hub: HubStandIn, tmp_path: Path) -> None:
    taken = Path(
        snapshot_download("org/tiny", repo_type="dataset", endpoint=hub.url, cache_dir=tmp_path, token=False)
    )
    assert {path: (taken / path).read_bytes() for path in FILES} == FILES


def test_errors_are_those_that_the_library_knows(api: HfApi, hub: HubStandIn, tmp_path: Path) -> None:
    with pytest.raises(RevisionNotFoundError):
        api.dataset_info("org/tiny", revision="0" * 40)
    hub.add("org/tiny", REVISION, FILES, gated=True)
    with pytest.raises(GatedRepoError):
        hf_hub_download(
            "org/tiny",
            "README.md",
            repo_type="dataset",
            revision=REVISION,
            endpoint=hub.url,
            cache_dir=tmp_path,
            token=False,
        )
