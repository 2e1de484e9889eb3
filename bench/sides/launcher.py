"""`python -S -E launcher.py RESULT WORDS…`: run a command and write what it took (bench/launched.py).

It imports little on purpose: the memory that a process held counts as held by the program that it becomes.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

done = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL, check=False)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
taken = {"code": done.returncode, "cpu_s": used.ru_utime + used.ru_stime, "peak_bytes": 1024 * used.ru_maxrss}
Path(sys.argv[1]).write_text(json.dumps(taken), "utf-8")
