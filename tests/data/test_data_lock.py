"""datasets.lock names every file by size and digest, and one that does not is refused as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_site import FILES, OBJECT, REVISION, Site

from assay.data.pins import BucketDataset, HubDataset, choose, datasets
from assay.errors import ConfigurationError
from assay.paths import ROOT
from hub_standin import lock_entry

ENTRY = lock_entry("tiny", "org/tiny", REVISION, FILES)
# A second record of what the profiles need: name, place, commit or generations, bytes.
PINNED = {
    "aime24": ("HuggingFaceH4/aime_2024", "2fe88a2f1091d5048c0f36abc874fb997b3dd99a", 82_602),
    "aime25": ("opencompass/AIME2025", "a6ad95f611d72cf628a80b58bd0432ef6638f958", 12_497),
    "aime26": ("MathArena/aime_2026", "10b4e45b7a503075d4da8a0d57916a4f06ce6bd2", 11_757),
    "i3-logic": ("PrimeIntellect/INTELLECT-3-RL", "a9eb9183224cec63fe9a71e7a3a80cff14868624", 16_507_759),
    "livecodebench": (
        "livecodebench/code_generation_lite",
        "0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
        4_485_994_821,
    ),
    "mmlu-pro": ("TIGER-Lab/MMLU-Pro", "b189ec765aa7ed75c8acfea42df31fdae71f97be", 4_198_765),
    "mrcr-v2": ("mrcr_v2", "1752099150466835,1752098306692796", 199_606_669),
    "graphwalks": ("openai/graphwalks", "f338bb265735a56a79f4b0f5def722c9c3268ead", 319_035_282),
}


def test_the_lock_pins_what_the_profiles_need() -> None:
    found = datasets(ROOT / "datasets.lock")
    named = {
        name: (
            dataset.repository if isinstance(dataset, HubDataset) else dataset.bucket,
            dataset.revision,
            dataset.size_bytes,
        )
        for name, dataset in found.items()
    }
    assert named == PINNED
    assert sum(dataset.size_bytes for dataset in found.values()) == 5_025_450_152


def test_small_files_are_named_by_gits_hash_and_large_ones_by_sha256() -> None:
    files = [file for dataset in datasets(ROOT / "datasets.lock").values() for file in dataset.files]
    assert {file.algorithm for file in files if file.path.endswith((".md", "-I.jsonl"))} == {"git-sha1"}
    assert {file.algorithm for file in files if file.size_bytes > 1_000_000} == {"sha256"}


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (ENTRY.replace("revision =", "revison ="), 'did you mean "revision"?'),
        (ENTRY.replace("sha256 =", "sha265 ="), 'did you mean "sha256"?'),
        (ENTRY.replace(REVISION, "main"), "revision"),
        (ENTRY.replace('git_sha1 = "', 'git_sha1 = "x'), "git_sha1"),
        (ENTRY.replace("git_sha1", f'sha256 = "{"0" * 64}", git_sha1'), "one of them"),
        (ENTRY.replace('"README.md"', '"../README.md"'), "not a plain relative one"),
        (ENTRY.replace('"README.md"', '"/README.md"'), "not a plain relative one"),
        (ENTRY.replace('"README.md"', '"a//README.md"'), "not a plain relative one"),
        (ENTRY.replace('"README.md"', '"data"'), "leads through another"),
        (ENTRY.replace("size_bytes = 262144,", "size_bytes = 262145,"), "but its files have"),
        (ENTRY.replace("size_bytes = 262144,", "size_bytes = 0,"), "greater than 0"),
        (ENTRY.replace("org/tiny", "tiny"), "repository"),
        (ENTRY.replace('"hub"', '"ftp"'), "does not match any of the expected tags"),
        (ENTRY + ENTRY, "names tiny twice"),
        (ENTRY + ENTRY.replace('"tiny"', '"other"'), "names other twice"),
        (ENTRY.replace('"tiny"', '"all"'), "names all twice"),
        ("[dataset]\n" + ENTRY.partition("\n")[2], "something else than [[dataset]] and [[unpinned]]"),
        ("[[data]]\n" + ENTRY, "something else than [[dataset]] and [[unpinned]]"),
        (OBJECT % ("0" * 63), "sha256"),
        (OBJECT.replace('"17"', '"latest"') % ("0" * 64), "generation"),
    ],
)
def test_a_lock_that_is_not_well_formed_is_refused(site: Site, broken: str, said: str) -> None:
    site.lock(broken)
    with pytest.raises(ConfigurationError) as caught:
        datasets()
    assert said in str(caught.value)


def test_a_missing_lock_is_bad_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        datasets(tmp_path / "datasets.lock")


def test_an_object_of_a_bucket_is_pinned_by_its_generation(site: Site) -> None:
    site.lock(OBJECT % ("0" * 64))
    dataset = choose(["needles"])[0]
    assert isinstance(dataset, BucketDataset)
    assert dataset.revision == "17"
    assert dataset.files[0].part == "short"


def test_an_unknown_name_suggests_the_nearest(tiny: Site) -> None:
    with pytest.raises(ConfigurationError) as caught:
        choose(["tinny"])
    assert 'did you mean "tiny"?' in caught.value.why


def test_all_is_every_dataset_once(site: Site) -> None:
    site.lock(ENTRY, OBJECT % ("0" * 64))
    assert [dataset.name for dataset in choose(["needles", "all"])] == ["tiny", "needles"]
    assert [dataset.name for dataset in choose(["needles", "needles"])] == ["needles"]
