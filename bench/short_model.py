"""`python -m bench.short_model LAYERS PATH [--idle]`: a small model that guesses, and one that it knows.

Contract: a GGUF file with the model's own embedding, head, norm, tokenizer and first layers, bytes as they
are. Nobody trained it to end there: next to nothing that it guesses is chosen, which is the most that
guessing can cost. With `--idle` every layer stays and takes its time, but those behind the first ones add
nothing (their last matrices are zeros): of such a model the short one guesses every token, which is the most
that guessing can gain at this cost. What a real small model brings lies between the two. It needs the `gguf`
package, as the tests do.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from assay.console import complain, say
from assay.errors import AssayError, ConfigurationError
from assay.models import verify
from bench.options import add_model, whole
from bench.peers import MODEL

ARCHITECTURE, LAYERS = "general.architecture", "block_count"
_LAYER = re.compile(r"blk\.(\d+)\.")
_LAST = ("attn_output.weight", "ssm_out.weight", "ffn_down.weight")  # what a layer adds comes out of these


def shorten(model: Path, layers: int, path: Path, *, idle: bool = False) -> int:
    """Write the first layers of a model, or all of which only these add anything; how many it has in all.

    Raises:
        ConfigurationError: it has no more than so many layers, or some that predict further tokens.
    """
    reader = GGUFReader(model)
    architecture = reader.fields[ARCHITECTURE].contents()
    counted = f"{architecture}.{LAYERS}"
    every = int(reader.fields[counted].contents())
    if f"{architecture}.nextn_predict_layers" in reader.fields:
        why = "its last layers predict further tokens"
        raise ConfigurationError(f"{model} is not shortened", why, "--model FILE, of a model without such")
    if layers >= every:
        why = f"the model has {every}"
        raise ConfigurationError(f"{layers} layers are no shorter model", why, f"1 to {every - 1} layers")
    writer = GGUFWriter(path, architecture)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == ARCHITECTURE:
            continue
        kind, value = field.types[0], layers if key == counted and not idle else field.contents()
        item = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(key, value, kind, sub_type=item)
    for tensor in reader.tensors:
        layer = _LAYER.match(tensor.name)
        first = layer is None or int(layer[1]) < layers
        if first or idle:
            # A block of nothing but zero bits means zeros in every type.
            gone = not first and tensor.name.endswith(_LAST)
            data = np.zeros_like(tensor.data) if gone else tensor.data
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return every


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; the exit code."""
    out = argparse.ArgumentParser(prog="python -m bench.short_model", description=__doc__.splitlines()[0])
    out.add_argument("layers", type=whole(1), help="how many are kept")
    out.add_argument("path", type=Path, help="of the GGUF file that is written")
    out.add_argument("--idle", action="store_true", help="keep every layer, and let these alone add anything")
    add_model(out, MODEL)
    options = out.parse_args(arguments)
    try:
        model = options.model or verify(MODEL)
        every = shorten(model, options.layers, options.path, idle=options.idle)
    except AssayError as error:
        complain(error)
        return error.exit_code
    say(f"{options.path}: {options.layers} of {every} layers{' that add anything' if options.idle else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
