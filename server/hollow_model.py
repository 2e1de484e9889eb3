"""Models of any size without their weights: what a plan is made of, in kilobytes.

Contract: a GGUF file or a directory of safetensors files whose headers are those of a real model, each file
as long as it would be and a hole on the disk from its header on. Planning reads it as it would the model;
loading it would serve zeros. `python -m server.hollow_model qwen35-27b w4a16 DIR` makes one.

The shapes are public ones; the forms are named after what is usually published:
    q4_0     matrices and embedding Q4_0, head Q6_K
    q4_k_m   Q4_K; Q6_K the head, and half of the value and down projections; Q5_K the joint ones
    q8_0     all matrices Q8_0
    w4a16    a directory, group 128, packed; head and embedding BF16
    w4a16-head   the same with a packed head
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from server import hollow_folder, hollow_gguf
from server.model_shape import SHAPES, Shape

FORMS = (*hollow_gguf.FORMS, *hollow_folder.FORMS)


def write(shape: Shape, form: str, path: Path) -> Path:
    """Write a hollow model and return its path: a file of GGUF, or a directory.

    Raises:
        ValueError: there is no such form.
        FileExistsError: there is something at the path, which could be the real model.
        OSError: it cannot be written.
    """
    if form not in FORMS:
        raise ValueError(f"{form!r} is none of {', '.join(FORMS)}")
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if form in hollow_gguf.FORMS:
        hollow_gguf.write_gguf(shape, form, path)
    else:
        hollow_folder.write_folder(shape, path, packed_head=form == "w4a16-head")
    return path


def main(argv: Sequence[str] | None = None) -> int:
    """Write the hollow model that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m server.hollow_model", description=__doc__.splitlines()[0]
    )
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("path", type=Path, help="where it goes: a file of GGUF, or a directory")
    options = parser.parse_args(argv)
    try:
        write(SHAPES[options.shape], options.form, options.path)
    except OSError as error:
        parser.error(f"{options.path} cannot be written: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
