"""How a model reads and writes: tokenizer, chat template, dialect and grammars, made of its metadata alone.

Contract: :meth:`Language.read` refuses what no server could be made of, and needs no weights for it: it is
called before they are loaded, which for a large model takes minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from server.dialect import Dialect
from server.errors import MISSING_DEPENDENCY, StartError
from server.grammar import GrammarCompiler
from server.identity import tokenizer_sha256
from server.template import ChatTemplate
from server.tokenizer import Tokenizer
from server.vocabulary import is_text, shown


@dataclass(frozen=True, slots=True)
class Language:
    """What stands between a client's words and a model's tokens."""

    tokenizer: Tokenizer
    tokenizer_sha256: str  # of the metadata that it was made of
    template: ChatTemplate | None  # None: the model has none, so there is no chat
    dialect: Dialect
    grammars: GrammarCompiler

    @classmethod
    def read(cls, metadata: Mapping[str, object], vocabulary: int) -> Language:
        """Return the language of a model.

        Args:
            metadata: as GGUF names it, a directory's tokenizer included.
            vocabulary: rows of the model's output.

        Raises:
            StartError: there is no tokenizer, or it, the template or both cannot be used.
        """
        tokenizer = Tokenizer(metadata)
        if tokenizer.size != vocabulary:
            raise StartError(
                "the model file contradicts itself",
                f"its tokenizer has {tokenizer.size} tokens, its output {vocabulary}",
                "assay model fetch NAME",
                MISSING_DEPENDENCY,
            )
        template = _template(metadata, tokenizer)
        return cls(
            tokenizer,
            tokenizer_sha256(metadata),
            template,
            Dialect.read(template.source, tokenizer) if template else Dialect(),
            GrammarCompiler(tokenizer),
        )


def _template(metadata: Mapping[str, object], tokenizer: Tokenizer) -> ChatTemplate | None:
    source = metadata.get("tokenizer.chat_template")
    if source is None:
        return None
    if not is_text(source):
        raise StartError(
            "the model's chat template cannot be read",
            f"`tokenizer.chat_template` is {shown(source)}, which is no text",
            "use a model file with a valid tokenizer.chat_template",
            MISSING_DEPENDENCY,
        )
    variables = {}
    for variable, key in (("bos_token", "bos_token_id"), ("eos_token", "eos_token_id")):
        token = metadata.get(f"tokenizer.ggml.{key}")
        if isinstance(token, int) and 0 <= token < tokenizer.size:
            variables[variable] = tokenizer.decode([token], control=True)
    return ChatTemplate(source, tokenizer.control_names, variables)
