"""A byte-level BPE tokenizer of a few merges, as a model's directory has it: `tokenizer.json` and so on."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from server.tokenizer import byte_alphabet

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PLAIN = ("<think>", "</think>")
MERGES = (("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "n"), ("an", "d"), ("i", "n"), ("1", "2"), ("Ġ", "Ġ"))
SIZE = 280  # ids of the model's table: more than there are tokens

# The published patterns of the Qwen families, as their tokenizer.json has them.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"qwen2": QWEN2, "qwen35": QWEN35}
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def build(split: str = "qwen35") -> Tokenizer:
    """The library's own tokenizer."""
    letters = sorted(byte_alphabet())
    vocabulary = {name: token for token, name in enumerate(letters)}
    for left, right in MERGES:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(MERGES), fuse_unk=False))
    tokenizer.decoder = decoders.ByteLevel()
    spelt = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split not in PATTERNS)
    if split in PATTERNS:
        tokenizer.normalizer = normalizers.NFC()
        cut = pre_tokenizers.Split(Regex(PATTERNS[split]), "isolated", invert=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, spelt])
    elif split == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), spelt])
    else:
        tokenizer.pre_tokenizer = spelt
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in PLAIN])
    return tokenizer


def write(folder: Path, split: str = "qwen35") -> Path:
    """Write the four files of a directory's tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build(split)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "bos_token": None, "add_bos_token": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    ends = [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends, "temperature": 0.6}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder
