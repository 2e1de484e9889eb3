"""A directory in the place of the publishers, for machines that reach none: the same bytes or nothing.

For a file PATH of the dataset NAME, the first of these that is there is taken:

    DIR/NAME/PATH                                       files by the dataset's name
    DIR/hub/datasets--ORG--REPO/snapshots/REV/PATH      another checkout's eval/.data, or an HF_HOME
    DIR/datasets--ORG--REPO/snapshots/REV/PATH          an HF_HUB_CACHE (links into its blobs are followed)
    DIR/ORG/REPO/PATH                                   `hf download --local-dir`, by the repository's name
    DIR/SOURCE/datasets--ORG--REPO/REV/PATH             another checkout's eval/.data (modelscope, github)
    DIR/ORG/REPO/PATH, DIR/datasets/ORG/REPO/PATH       a clone; ModelScope's own cache
    DIR/gcs/NAME/PATH, DIR/BUCKET/PATH                  objects of a bucket

The directory is only read, and what it holds is verified as if it had been downloaded.
"""

from __future__ import annotations

from pathlib import Path

from assay.data.partial import Partial
from assay.data.pins import Dataset, HubDataset, PinnedFile, RepositoryDataset
from assay.errors import ConfigurationError, PrerequisiteError

CHUNK_BYTES = 1 << 20


class Mirror:
    """A directory that holds copies of pinned files."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise ConfigurationError(
                f"{directory} is no directory",
                "--mirror names one that holds the files",
                "eval/scripts/data --help",
            )
        self.directory = directory

    def places(self, dataset: Dataset, file: PinnedFile) -> list[Path]:
        """Where the file may be, in order."""
        if isinstance(dataset, HubDataset):
            in_cache = dataset.folder.relative_to("hub")
            named = [Path("hub", in_cache), Path(in_cache), Path(dataset.repository)]
        elif isinstance(dataset, RepositoryDataset):
            repository = Path(dataset.repository)
            named = [Path(dataset.folder), repository, Path("datasets", repository)]
        else:
            named = [Path("gcs", dataset.name), Path(dataset.bucket)]
        return [self.directory / place / file.path for place in (Path(dataset.name), *named)]

    def find(self, dataset: Dataset, file: PinnedFile) -> Path:
        """Where the file is; PrerequisiteError, naming every place, when it is nowhere."""
        places = self.places(dataset, file)
        for path in places:
            if path.is_file():
                return path
        listing = "".join(f"\n        {path}" for path in places)
        raise PrerequisiteError(
            f"{self.directory} does not hold {file.path} of {dataset.name}",
            f"looked for:{listing}",
            "copy it there from a machine that has it, then type the command again",
        )

    def get(self, dataset: Dataset, file: PinnedFile, into: Partial) -> None:
        """Copy one file from its start; VerificationError when it is longer than what is pinned."""
        path = self.find(dataset, file)
        into.came_from = str(path)
        into.restart()
        with path.open("rb", buffering=0) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                into.write(chunk)
