# /// script
# requires-python = ">=3.10"
# dependencies = ["attrs"]
# ///
"""Run a program on each test case and print the share of them it passed; in the sandbox, through uv.

Arguments: the program's file, the file with the test cases, seconds a case may take.
"""

import json
import subprocess
import sys
from pathlib import Path

import attrs


@attrs.frozen
class Case:
    input: str
    output: str

    def passes(self, program: str, seconds: float) -> bool:
        try:
            done = subprocess.run(
                [sys.executable, "-I", program],
                input=self.input,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0 and done.stdout.split() == self.output.split()


def main() -> None:
    program, cases, seconds = sys.argv[1:]
    found = [Case(**case) for case in json.loads(Path(cases).read_text("utf-8"))]
    passed = sum(case.passes(program, float(seconds)) for case in found)
    print(json.dumps({"passed": passed, "cases": len(found)}))


if __name__ == "__main__":
    main()
