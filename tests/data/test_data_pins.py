"""The test pin set's data are had as production's are: all of them, by one command, from hub and bucket."""

from __future__ import annotations

import os

from data_site import Site

from assay import data
from assay.data.fetch import fetch
from assay.paths import ROOT
from bucket_standin import BucketStandIn
from hub_standin import HubStandIn
from pinned import rows


def test_all_of_the_test_pin_set_comes_from_the_stand_ins(
    site: Site, hub: HubStandIn, bucket: BucketStandIn
) -> None:
    site.lock((ROOT / "tests/pins/datasets.lock").read_text("utf-8"))
    for held in rows.repositories():
        hub.add(held.repo, held.revision, held.files, held.large)
    for item in rows.objects():
        bucket.put(item.bucket, item.object, int(item.generation), item.data)
    os.environ |= {"HF_ENDPOINT": hub.url, "ASSAY_BUCKET_ENDPOINT": bucket.url}
    found = {snapshot.name: snapshot for snapshot in fetch(["all"])}
    assert set(found) == set(data.datasets(ROOT / "datasets.lock"))
    for held in rows.repositories():
        assert {path: (found[held.name].path / path).read_bytes() for path in held.files} == held.files
    assert found == {name: data.verify(name) for name in found}
