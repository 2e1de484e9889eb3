"""The machine a figure was taken on, and whether it was quiet.

Contract: everything is read from the kernel's own files; what cannot be read is None. The busy share counts
every core's time that is neither idle nor waiting for a disk, the hypervisor's steal included.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

QUIET_SHARE = 0.05  # of all cores, over WATCH_SECONDS
WATCH_SECONDS = 3.0


@dataclass(frozen=True)
class CpuTime:
    """Seconds of all cores since the machine started."""

    busy_s: float
    steal_s: float  # taken by other guests of the same hardware
    total_s: float


@dataclass(frozen=True)
class Machine:
    """What decides speed beside the program.

    Attributes:
        cpu: The processor's model name.
        cores: Usable by this process.
        features: The vector extensions that matter here and are there.
        governor: Of frequency scaling; None where the kernel offers none (virtual machines).
        kernel: Name and release.
        memory_bytes: Of the machine.
    """

    cpu: str
    cores: int
    features: tuple[str, ...]
    governor: str | None
    kernel: str
    memory_bytes: int


def describe() -> Machine:
    """Read what this machine is."""
    fields = {
        key.strip(): value.strip()
        for key, _, value in (line.partition(":") for line in _read("/proc/cpuinfo").splitlines())
        if value
    }
    flags = set(fields.get("flags", "").split())
    wanted = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx_vnni", "amx_int8")
    model = fields.get("model name", platform.processor())
    detail = [fields[key] for key in ("cpu family", "model", "stepping") if key in fields]
    return Machine(
        cpu=f"{model} (family/model/stepping {'/'.join(detail)})" if detail else model,
        cores=len(os.sched_getaffinity(0)),
        features=tuple(flag for flag in wanted if flag in flags),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None,
        kernel=f"{platform.system()} {platform.release()}",
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def cpu_time() -> CpuTime:
    """Read the seconds that all cores together have spent."""
    ticks = [int(word) for word in _read("/proc/stat").splitlines()[0].split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = (
        tick / os.sysconf("SC_CLK_TCK") for tick in ticks
    )
    busy = user + nice + system + irq + softirq + steal
    return CpuTime(busy, steal, busy + idle + iowait)


def busy_share(seconds: float = WATCH_SECONDS) -> float:
    """Watch all cores while this process sleeps; the share of their time that was used."""
    before = cpu_time()
    time.sleep(seconds)
    after = cpu_time()
    return (after.busy_s - before.busy_s) / max(after.total_s - before.total_s, 1e-9)


def process_seconds(pid: int) -> float:
    """Processor seconds that a process and its threads have used."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process: int | str) -> dict[str, int]:
    """A process's memory in bytes: resident now, of files among it, the most it was.

    Raises:
        OSError: there is no such process.
    """
    text = Path(f"/proc/{process}/status").read_text("utf-8")
    fields = {line.partition(":")[0]: line.split()[1] for line in text.splitlines() if line.endswith(" kB")}
    return {
        "resident_bytes": 1024 * int(fields["VmRSS"]),
        "file_bytes": 1024 * int(fields["RssFile"]),
        "peak_bytes": 1024 * int(fields["VmHWM"]),
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""
