"""Runs inside the evaluator's environment: a container as Verifiers makes it, asked what it can reach.

Arguments: image, a port at which something answers HTTP on every address of this host. Prints one JSON
object: who the program runs as, and what was reachable before and after Verifiers cut the network.
"""

from __future__ import annotations

import asyncio
import json
import sys

from verifiers.v1.harnesses.utils.launch import CHAT_PROGRAM_SOURCE
from verifiers.v1.runtimes import make_runtime
from verifiers.v1.runtimes.docker import DockerConfig

PROBE = """
import json, socket, struct, sys, urllib.request
port = int(sys.argv[1])
with open("/proc/net/route") as table:
    gateway = next(
        socket.inet_ntoa(struct.pack("<L", int(row.split()[2], 16)))
        for row in table.readlines()[1:] if row.split()[1] == "00000000"
    )
def attempt(action):
    try:
        action()
        return True
    except OSError:
        return False
found = {
    "direct": attempt(lambda: socket.create_connection((gateway, port), 3)),
    "through the proxy": attempt(lambda: urllib.request.urlopen(f"http://{gateway}:{port}/", timeout=5)),
    "other addresses": attempt(lambda: socket.create_connection(("1.1.1.1", 53), 2)),
    "names": attempt(lambda: socket.getaddrinfo("example.org", 80)),
    "packets": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)),
}
json.dump(found, sys.stdout)
"""


async def main() -> None:
    """Start, prepare as the null harness does, ask, cut, ask again."""
    image, port = sys.argv[1:]
    config = DockerConfig(image=image, workdir="/workspace", cpu=1.0, memory=1.0, allow=[])
    runtime = make_runtime(config)
    try:
        await runtime.start()
        await runtime.prepare_uv_script(CHAT_PROGRAM_SOURCE)
        who = await runtime.run(["sh", "-c", "id -un; touch here && echo writable"], {})
        before = await runtime.run(["python3", "-c", PROBE, port], {})
        await runtime.prepare_execution(["http://127.0.0.1:9"])
        after = await runtime.run(["python3", "-c", PROBE, port], {})
        print(
            json.dumps(
                {
                    "who": who.stdout.split(),
                    "before": json.loads(before.stdout),
                    "after": json.loads(after.stdout),
                }
            )
        )
    finally:
        await runtime.stop()


asyncio.run(main())
