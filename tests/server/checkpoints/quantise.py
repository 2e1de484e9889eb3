"""The public quantisers, called as they are meant to be: what `make.py` commits as quantised directories.

compressed-tensors observes nothing by itself, so scales are its `calculate_qparams` of each group's extremes,
as round-to-nearest quantisation takes them; packing and unpacking are its own. GPTQModel's quantiser and
packer are called on each matrix likewise. What the packed weights stand for is then put back into the model,
so that its logits are those of the dequantised weights.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tests.server.checkpoints.models import Tiny

GROUP = 128
IGNORED = ["lm_head", "re:.*in_proj_[ab]$"]


@dataclass(frozen=True)
class Packed:
    """What a quantised directory holds.

    Attributes:
        tensors: Of the safetensors file.
        config: What config.json has beside the model's own.
        values: Every quantised matrix's dequantised values, by the packer's own code.
    """

    tensors: dict[str, torch.Tensor]
    config: dict[str, object]
    values: dict[str, npt.NDArray[np.float32]]

    def digests(self) -> dict[str, str]:
        """Of every matrix's values, as float32 in order."""
        return {name: hashlib.sha256(each.tobytes()).hexdigest() for name, each in self.values.items()}


def quantise(tiny: Tiny, model: nn.Module) -> Packed:
    """Quantise a model in place (its weights become the dequantised ones) and return what its file holds."""
    return _gptq(model) if tiny.form == "gptq" else _compressed(tiny, model)


def _compressed(tiny: Tiny, model: nn.Module) -> Packed:
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    model.to(torch.bfloat16)
    scheme = {"w4a16": "W4A16", "nvfp4": "NVFP4A16"}[tiny.form]
    config = QuantizationConfig(config_groups={scheme: ["Linear"]}, ignore=IGNORED)
    apply_quantization_config(model, config)
    for module in model.modules():
        given = getattr(module, "quantization_scheme", None)
        if given is None:
            continue
        groups = module.weight.unflatten(-1, (-1, given.weights.group_size)).float()
        least, most = groups.amin(-1), groups.amax(-1)
        factor = None
        if tiny.form == "nvfp4":
            factor = generate_gparam(least.min(), most.max())
            module.weight_global_scale.data = factor
        scale, _ = calculate_qparams(least, most, given.weights, factor)
        module.weight_scale.data = scale.to(module.weight_scale.dtype)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    tensors = {
        name: value.contiguous().clone()
        for name, value in model.state_dict().items()
        if not (name == "lm_head.weight" and model.config.tie_word_embeddings)
    }
    saved = compressor.quantization_config.model_dump(mode="json", exclude={"quant_method"})
    compressor.decompress_model(model)
    names = [name.removesuffix(".weight_packed") for name in tensors if name.endswith(".weight_packed")]
    values = {name: model.get_submodule(name).weight.float().numpy() for name in names}
    return Packed(tensors, {"quantization_config": {"quant_method": "compressed-tensors", **saved}}, values)


def _gptq(model: nn.Module) -> Packed:
    from gptqmodel import QuantizeConfig
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.quantization.quantizer import Quantizer
    from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module

    model.to(torch.float16)
    settings = QuantizeConfig(bits=4, group_size=GROUP, sym=True, desc_act=False)
    tensors = {name: value.clone() for name, value in model.state_dict().items() if "_proj" not in name}
    for name, linear in list(model.named_modules()):
        if not (isinstance(linear, nn.Linear) and name.endswith("_proj")):
            continue
        scales, zeros = [], []
        for group in linear.weight.float().split(GROUP, 1):
            quantizer = Quantizer(settings)
            quantizer.configure(perchannel=True)
            quantizer.find_params(group, weight=True)
            scales.append(quantizer.scale)
            zeros.append(quantizer.zero)
        rows, columns = linear.weight.shape
        packer = TorchLinear(4, GROUP, sym=True, desc_act=False, in_features=columns, out_features=rows)
        order = torch.arange(columns, dtype=torch.int32) // GROUP
        packer.pack_original(linear.float(), torch.cat(scales, 1), torch.cat(zeros, 1).to(torch.int32), order)
        packer.post_init()
        linear.weight.data = packer.dequantize_weight().T.contiguous()
        convert_gptq_v2_to_v1_format_module(packer, settings)
        for part in ("qweight", "qzeros", "scales", "g_idx"):
            tensors[f"{name}.{part}"] = getattr(packer, part).contiguous().clone()
    config = {
        "quant_method": "gptq",
        "checkpoint_format": "gptq",
        "bits": 4,
        "group_size": GROUP,
        "sym": True,
        "desc_act": False,
        "lm_head": False,
    }
    names = [name.removesuffix(".qweight") for name in tensors if name.endswith(".qweight")]
    values = {name: model.get_submodule(name).weight.float().contiguous().numpy() for name in names}
    return Packed(tensors, {"quantization_config": config}, values)
