"""The tiny checkpoints: what the public model classes are asked to be.

Three float ones, whose weights a test draws again (`weights.py`), and three quantised ones, which are
committed as directories under `fixtures/` as a public quantiser packed them. Shapes are as unlike as they can
be: heads that do not fill the width, several value heads a key head, multiples of 256 columns for K-quants.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.server.checkpoints.weights import draw, to_bfloat16

FIXTURES = Path(__file__).with_name("fixtures")
VOCABULARY = 100
PROMPTS = (210, 70, 5)  # tokens: the first crosses three borders of 64, the second one, the third none
CONTEXT = 32_768


@dataclass(frozen=True)
class Tiny:
    """One checkpoint.

    Attributes:
        name: Of its folder under fixtures/.
        cls: The public model class, and the configuration class that it is made from.
        config: The configuration's keyword arguments.
        form: How weights lie: "float", or what quantised them.
        plus_one: Whether norms are stored without their 1 (Qwen3.5's own habit; its gated norm has it).
        mtp: Whether the file also holds the layer that predicts one token further, which nobody runs here.
    """

    name: str
    cls: tuple[str, str]
    config: dict[str, object] = field(repr=False)
    form: str = "float"
    plus_one: bool = False
    mtp: bool = False

    def values(self, tensor: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """The values of a tensor of the public implementation's name and shape."""
        drawn = draw(self.name, tensor, shape)
        whole = len(shape) == 1 and "norm" in tensor and tensor.endswith("weight")
        if whole and not (self.plus_one and not tensor.endswith("linear_attn.norm.weight")):
            return to_bfloat16(drawn + np.float32(1.0))
        return drawn

    @property
    def folder(self) -> Path:
        """Where its fixtures lie."""
        return FIXTURES / self.name

    def prompts(self) -> list[npt.NDArray[np.int64]]:
        """The token ids of every prompt; raw bits again, so that they never change."""
        words = np.random.PCG64(2_026_11).random_raw(sum(PROMPTS))
        tokens = (words % np.uint64(VOCABULARY)).astype(np.int64)
        return np.split(tokens, np.cumsum(PROMPTS)[:-1].tolist())


def _llama(width: int, heads: int, head_dim: int, ffn: int, *, tied: bool) -> dict[str, object]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "intermediate_size": ffn,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": 2,
        "head_dim": head_dim,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": tied,
    }


def _qwen35(layers: int, interval: int, *, value_heads: int, delta_dim: int, ffn: int) -> dict[str, object]:
    return {
        **_llama(256, 4, 64, ffn, tied=False),
        "num_hidden_layers": layers,
        "rms_norm_eps": 1e-6,
        "full_attention_interval": interval,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
        },
        "linear_conv_kernel_dim": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": value_heads,
        "linear_key_head_dim": delta_dim,
        "linear_value_head_dim": delta_dim,
    }


_ROPE = {"rope_type": "default"}
_VISION = {  # the published checkpoints hold one; nothing here reads it
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "patch_size": 2,
    "out_hidden_size": 256,
    "num_position_embeddings": 16,
}

MODELS = {
    each.name: each
    for each in (
        Tiny(
            "llama",
            ("LlamaForCausalLM", "LlamaConfig"),
            {
                **_llama(256, 8, 32, 512, tied=False),
                "rms_norm_eps": 1e-5,
                "rope_parameters": {**_ROPE, "rope_theta": 1e5},
            },
        ),
        Tiny(
            "qwen3",
            ("Qwen3ForCausalLM", "Qwen3Config"),
            {
                **_llama(256, 6, 64, 512, tied=True),
                "rms_norm_eps": 1e-6,
                "rope_parameters": {**_ROPE, "rope_theta": 1e6},
            },
        ),
        Tiny(
            "qwen35",
            ("Qwen3_5ForConditionalGeneration", "Qwen3_5Config"),
            {
                "text_config": {
                    **_qwen35(6, 3, value_heads=8, delta_dim=32, ffn=512),
                    "mtp_num_hidden_layers": 1,
                },
                "vision_config": _VISION,
                "tie_word_embeddings": False,
            },
            plus_one=True,
            mtp=True,
        ),
        Tiny(
            "llama-gptq",
            ("LlamaForCausalLM", "LlamaConfig"),
            {
                **_llama(128, 4, 32, 256, tied=False),
                "rms_norm_eps": 1e-5,
                "rope_parameters": {**_ROPE, "rope_theta": 1e4},
            },
            form="gptq",
        ),
        Tiny(
            "qwen3-nvfp4",
            ("Qwen3ForCausalLM", "Qwen3Config"),
            {
                **_llama(128, 4, 64, 256, tied=True),
                "rms_norm_eps": 1e-6,
                "rope_parameters": {**_ROPE, "rope_theta": 1e6},
            },
            form="nvfp4",
        ),
        Tiny(
            "qwen35-w4a16",
            ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig"),
            _qwen35(2, 2, value_heads=4, delta_dim=64, ffn=256),
            form="w4a16",
            plus_one=True,
        ),
    )
}
