"""Whatever goes wrong on the way, a file that has its final name is the pinned one, and trying again ends."""

from __future__ import annotations

import os
import shutil
import time

import pytest
from data_site import FILES, OBJECT, REVISION, TABLE, Site
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay import data
from assay.data.fetch import fetch
from assay.errors import AssayError
from bucket_standin import BucketStandIn
from hub_standin import HubStandIn, sha256
from served_bytes import Fault

DATA = FILES[TABLE]
SIZE = len(DATA)
PLACES = st.integers(0, SIZE - 1)
# A status that passes, a cut, an end too early, an ignored range, a wrong part, wrong bytes.
FAULTS = st.one_of(
    st.just(Fault(status=503)),
    st.builds(Fault, cut_at=PLACES),
    st.builds(Fault, ends_at=PLACES),
    st.builds(Fault, whole=st.just(True), cut_at=PLACES),
    st.builds(Fault, part=PLACES),
    st.just(Fault(body=DATA[::-1])),
    st.just(Fault(body=DATA + b"!")),
)
SETTINGS = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def try_until_whole(name: str, faults: int) -> None:
    """Type the command until it succeeds; a fault costs at most one of them."""
    for _ in range(faults + 1):
        try:
            found = fetch([name])
        except AssayError:
            continue
        assert found == [data.verify(name)]
        return
    pytest.fail("it never ended")


@pytest.mark.slow
@SETTINGS
@given(faults=st.lists(FAULTS, max_size=5))
def test_an_object_of_a_bucket_survives_any_faults(
    site: Site, bucket: BucketStandIn, faults: list[Fault]
) -> None:
    shutil.rmtree(site.data, ignore_errors=True)
    site.lock((OBJECT % sha256(DATA)).replace("size_bytes = 3", f"size_bytes = {SIZE}"))
    os.environ["ASSAY_BUCKET_ENDPOINT"] = bucket.url
    bucket.put("some_bucket", "a (1,2).csv", 17, DATA)
    bucket.forget()
    bucket.fail("a (1,2).csv", *faults)
    try_until_whole("needles", len(faults))
    assert (data.verify("needles").path / "a (1,2).csv").read_bytes() == DATA


@pytest.mark.slow
@SETTINGS
@given(faults=st.lists(FAULTS, max_size=5))
def test_a_file_of_the_hub_survives_any_faults(site: Site, hub: HubStandIn, faults: list[Fault]) -> None:
    shutil.rmtree(site.data, ignore_errors=True)
    site.tiny()
    os.environ["HF_ENDPOINT"] = hub.url
    hub.add("org/tiny", REVISION, FILES)
    hub.forget()
    hub.fail(TABLE, *faults, at="cdn")
    try_until_whole("tiny", len(faults))
    assert (site.snapshot / TABLE).read_bytes() == DATA
