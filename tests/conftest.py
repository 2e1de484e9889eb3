"""Fixtures that every room's tests share."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings

import beside
import toy_checkout
from assay.data import library
from assay.errors import AssayError
from assay.models import verify
from assay.paths import CACHE
from bucket_standin import BucketStandIn
from hub_standin import HubStandIn
from modelscope_standin import ModelScopeStandIn
from pinned.site import Site

TOY = pytest.StashKey[toy_checkout.Toy]()

# How long an example takes is no property of the code: this machine may be busy.
settings.register_profile("assay", deadline=None)
settings.load_profile("assay")

# The hub's library reads its environment when it is first imported: no test may ask or tell the real hub.
with mock.patch.dict(os.environ):
    library.prepare(CACHE / "hub-library")
    importlib.import_module("huggingface_hub.constants")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> beside.Scheduling:
    """Where tests run in two processes, what stays together."""
    return beside.Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, what comes first."""
    if hasattr(config, "workerinput"):
        beside.arrange(items)


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The real 4-bit model, verified; the test command fetches it before it runs the tests."""
    try:
        return verify("smollm2-135m")
    except AssayError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def toy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[toy_checkout.Toy]:
    """The toy checkout, made once for all tests of a run."""
    made = request.session.stash[TOY] = toy_checkout.make(tmp_path_factory.mktemp("toy"))
    yield made
    if made.warm is not None:
        made.warm.close()


@pytest.fixture(scope="module", autouse=True)
def toy_left_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module that changes the toy checkout, which all tests share, puts it back: runs tell what differs."""
    yield
    made = request.session.stash.get(TOY, None)
    if made is not None and (left := made.changed()):
        made.restore()
        pytest.fail(f"left in the toy checkout: {left}")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where a test's run directories are made."""
    path = tmp_path / "runs"
    path.mkdir()
    return path


@pytest.fixture
def hub() -> Iterator[HubStandIn]:
    """An empty hub of data sets on loopback; HF_ENDPOINT is to name its `url`."""
    with HubStandIn() as standin:
        yield standin


@pytest.fixture
def bucket() -> Iterator[BucketStandIn]:
    """An empty host of buckets on loopback; ASSAY_BUCKET_ENDPOINT is to name its `url`."""
    with BucketStandIn() as standin:
        yield standin


@pytest.fixture
def modelscope() -> Iterator[ModelScopeStandIn]:
    """An empty ModelScope on loopback; MODELSCOPE_ENDPOINT is to name its `url`."""
    with ModelScopeStandIn() as standin:
        yield standin


@pytest.fixture(scope="session")
def pinned_sources(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The test pin set with its task data; no environment yet."""
    site = Site.open(tmp_path_factory.mktemp("pinned"))
    site.fetch("all")
    return site


@pytest.fixture(scope="session")
def pinned(pinned_sources: Site) -> Site:
    """The test pin set with its task data and the environment of the evaluator prime-envs."""
    pinned_sources.set_up("prime-envs")
    return pinned_sources


@pytest.fixture(scope="session")
def pinned_direct(pinned_sources: Site) -> Site:
    """The test pin set with its task data and the environment of the evaluator direct."""
    pinned_sources.set_up("direct")
    return pinned_sources
