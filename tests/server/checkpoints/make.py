"""`python -m tests.server.checkpoints.make`: the committed fixtures, from the public implementations.

Run by hand, from the root of the checkout, in an environment of `requirements.lock` beside this file (torch
on the CPU; no test and no run of anything here needs it). For each checkpoint of `models.py` it makes the
public model class, gives it the weights, and writes under `fixtures/NAME/`:

config.json   as the class saves it
tensors.json  float ones: name -> [shape, sha256 of the bfloat16 bytes], from which tests make the files
*.safetensors quantised ones: the directory as compressed-tensors or GPTQModel packs it
dequantised.json  quantised ones: matrix -> sha256 of its dequantised float32 values, by the packer's own code
golden.npz    token ids of every prompt, and float32 logits after every token, in float32 arithmetic over
              the (dequantised) weights; quantised ones: `sample`, eight dequantised rows of `sample_name`

and `fixtures/rope_rows.npz`: rows of cosines and sines at positions that differ by section.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import transformers
from safetensors.torch import save_file

from tests.server.checkpoints.models import FIXTURES, MODELS, Tiny
from tests.server.checkpoints.quantise import quantise
from tests.server.checkpoints.weights import bfloat16_bytes

ROPE_POSITIONS = ((0, 0, 0), (5, 5, 5), (7, 3, 11), (1000, 2, 77), (32_767, 31, 0))


def main() -> int:
    """Write every fixture; the exit code."""
    torch.set_grad_enabled(False)
    torch.set_num_threads(2)
    for tiny in MODELS.values():
        model, values = build(tiny)
        tiny.folder.mkdir(parents=True, exist_ok=True)
        for old in tiny.folder.iterdir():
            old.unlink()
        arrays = {f"tokens_{index}": tokens for index, tokens in enumerate(tiny.prompts())}
        if tiny.form == "float":
            table = {
                name: [list(value.shape), hashlib.sha256(bfloat16_bytes(value)).hexdigest()]
                for name, value in sorted(values.items())
            }
            _write_json(tiny.folder / "config.json", _saved(model.config))
            _write_json(tiny.folder / "tensors.json", table)
        else:
            packed = quantise(tiny, model)
            _write_json(tiny.folder / "config.json", {**_saved(model.config), **packed.config})
            _write_json(tiny.folder / "dequantised.json", packed.digests())
            save_file(packed.tensors, tiny.folder / "model.safetensors", metadata={"format": "pt"})
            (tiny.folder / "model.safetensors").chmod(0o644)
            sample = min(packed.values)
            arrays |= {"sample_name": np.array(sample), "sample": packed.values[sample][:8]}
            exact = model.float().state_dict()
            model, _ = build(tiny)  # anew, since a cast also rounds the rope's frequencies
            model.load_state_dict({name: exact[name] for name in model.state_dict()})
        for index, tokens in enumerate(tiny.prompts()):
            answered = model(input_ids=torch.from_numpy(tokens)[None], use_cache=False).logits
            arrays[f"logits_{index}"] = answered[0].numpy()
        np.savez(tiny.folder / "golden.npz", **arrays)
        size = sum(path.stat().st_size for path in tiny.folder.iterdir())
        print(f"{tiny.name}: {len(values)} tensors, {size / 1024:.0f} KiB", file=sys.stderr)
    np.savez(FIXTURES / "rope_rows.npz", **rope_rows())
    return 0


def build(tiny: Tiny) -> tuple[transformers.PreTrainedModel, dict[str, npt.NDArray[np.float32]]]:
    """The public model with its weights, and every value that its file holds."""
    cls, config = (getattr(transformers, name) for name in tiny.cls)
    model = cls(config(**tiny.config))
    model.eval()
    model.config.architectures = [tiny.cls[0]]
    values = {name: tiny.values(name, tuple(each.shape)) for name, each in model.state_dict().items()}
    if getattr(model.config, "tie_word_embeddings", False):
        del values["lm_head.weight"]
    missing = model.load_state_dict(
        {name: torch.from_numpy(each) for name, each in values.items()}, strict=False
    )
    tied = {"lm_head.weight"} if "lm_head.weight" not in values else set()
    if missing.unexpected_keys or set(missing.missing_keys) - tied:
        raise RuntimeError(f"{tiny.name}: {missing}")
    model.tie_weights()
    if tiny.mtp:
        for name, shape in mtp_shapes(values).items():
            values[name] = tiny.values(name, shape)
    return model, values


def mtp_shapes(values: dict[str, npt.NDArray[np.float32]]) -> dict[str, tuple[int, ...]]:
    """The tensors of the layer that predicts one token further: a full-attention layer and what joins it."""
    layers = sorted({name.split(".self_attn.")[0] for name in values if ".self_attn." in name})
    shapes = {
        "mtp.layers.0" + name.removeprefix(layers[0]): value.shape
        for name, value in values.items()
        if name.startswith(layers[0] + ".")
    }
    width = values[f"{layers[0]}.input_layernorm.weight"].shape[0]
    shapes["mtp.fc.weight"] = (width, 2 * width)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        shapes[f"mtp.{name}.weight"] = (width,)
    return shapes


def rope_rows() -> dict[str, npt.NDArray[np.float32]]:
    """Rows of the public class's interleaved m-rope, [rows, rope_dim / 2], at positions by section."""
    found: dict[str, npt.NDArray[np.float32]] = {"positions": np.array(ROPE_POSITIONS, np.int32)}
    module = transformers.models.qwen3_5.modeling_qwen3_5
    for name, head_dim, sections in (("tiny", 64, [3, 3, 2]), ("27b", 256, [11, 11, 10])):
        text = dict(MODELS["qwen35-w4a16"].config)
        given = text["rope_parameters"]
        assert isinstance(given, dict)
        rope = {**given, "mrope_section": sections}
        config = transformers.Qwen3_5TextConfig(**{**text, "head_dim": head_dim, "rope_parameters": rope})
        rotary = module.Qwen3_5TextRotaryEmbedding(config)
        positions = torch.tensor(ROPE_POSITIONS).T[:, None, :]  # [section, batch, row]
        cosine, sine = rotary(torch.zeros(1), positions)
        half = cosine.shape[-1] // 2
        found[f"{name}_sections"] = np.array([*sections, 0], np.int32)
        found[f"{name}_cosine"], found[f"{name}_sine"] = (
            cosine[0, :, :half].numpy(),
            sine[0, :, :half].numpy(),
        )
    return found


def _saved(config: transformers.PretrainedConfig) -> dict[str, object]:
    saved: dict[str, object] = json.loads(config.to_json_string(use_diff=False))
    text = saved.get("text_config", saved)
    if (
        isinstance(text, dict) and "linear_num_key_heads" in text
    ):  # published files have it, the class drops it
        text["full_attention_interval"] = text["layer_types"].index("full_attention") + 1
    return saved


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
