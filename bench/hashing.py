"""`python -m bench.hashing`: how fast Assay hashes files, as a share of `sha256sum` on the same bytes.

Both sides run in turn (A B B A) over the same files in the page cache: one core each for the rate a core,
then all cores for Assay's parallel rate. Ratios are medians over pairs, since machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.digest import sha256_file, sha256_files

FILES = 4
FILE_BYTES = 64 << 20
PAIRS = 7


@dataclass(frozen=True)
class Rates:
    """Medians over pairs.

    Attributes:
        assay_mb_s: Megabytes a second, one core.
        sha256sum_mb_s: The same of `sha256sum`.
        share: Ratio of the two, a core.
        parallel_mb_s: Assay over all files at once.
        parallel_share_per_core: Parallel rate / cores / `sha256sum`'s rate.
        cores: Processors.
    """

    assay_mb_s: float
    sha256sum_mb_s: float
    share: float
    parallel_mb_s: float
    parallel_share_per_core: float
    cores: int


def seconds(action: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def measure(paths: Sequence[Path], pairs: int = PAIRS) -> Rates:
    """Time both sides over the files, interleaved.

    Args:
        paths: Files of equal size, already in the page cache.
        pairs: How often each side is timed.
    """
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    cores = len(os.sched_getaffinity(0))

    def ours() -> None:
        for path in paths:
            sha256_file(path)

    def theirs() -> None:
        subprocess.run(["sha256sum", *map(str, paths)], stdout=subprocess.DEVNULL, check=True)

    def parallel() -> None:
        sha256_files(paths)

    ours_s: list[float] = []
    theirs_s: list[float] = []
    parallel_s: list[float] = []
    for number in range(pairs):
        order = [(ours, ours_s), (theirs, theirs_s)]
        for action, times in order if number % 2 == 0 else reversed(order):
            times.append(seconds(action))
        parallel_s.append(seconds(parallel))
    ratios = [b / a for a, b in zip(ours_s, theirs_s, strict=True)]
    shares = [b / c / cores for b, c in zip(theirs_s, parallel_s, strict=True)]
    return Rates(
        assay_mb_s=round(megabytes / statistics.median(ours_s), 1),
        sha256sum_mb_s=round(megabytes / statistics.median(theirs_s), 1),
        share=round(statistics.median(ratios), 3),
        parallel_mb_s=round(megabytes / statistics.median(parallel_s), 1),
        parallel_share_per_core=round(statistics.median(shares), 3),
        cores=cores,
    )


def main() -> int:
    """Make the files, time both sides, print the rates."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.hashing", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.bin" for number in range(FILES)]
        for path in paths:
            path.write_bytes(os.urandom(1 << 20) * (FILE_BYTES >> 20))
        rates = measure(paths)
    if arguments.json:
        print(json.dumps(asdict(rates)))
    else:
        print(
            f"one core: {rates.assay_mb_s} MB/s, sha256sum {rates.sha256sum_mb_s} MB/s, share {rates.share}"
        )
        print(
            f"{rates.cores} cores: {rates.parallel_mb_s} MB/s, "
            f"{rates.parallel_share_per_core} of sha256sum's rate a core"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
