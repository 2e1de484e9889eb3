"""A coordinator and its child in one process, to be killed: asks texts through a gateway, prints each answer.

`python gateway_main.py FOLDER BASE_URL SLOTS TEXT…`; its last line is `end`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from lanes import chat, child, lane, pool, said


async def main(folder: str, base_url: str, slots: str, *texts: str) -> None:
    async with lane(Path(folder), pool(base_url, slots=int(slots))) as opened, child(opened) as client:
        for answer in asyncio.as_completed([chat(client, text) for text in texts]):
            sys.stdout.write(said(await answer) + "\n")
            sys.stdout.flush()
    sys.stdout.write("end\n")


asyncio.run(main(*sys.argv[1:]))
