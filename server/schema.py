"""What a client may ask, in OpenAI's field names, checked strictly.

Types are strict (a number in quotes is wrong). A parameter that would change the answer and is not
supported is refused by name; the same parameter at its neutral value is accepted, since client libraries
send whole parameter sets. A parameter nobody knows is refused with the nearest known name: a typing error
in an evaluation must not pass silently as the default.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from server.errors import invalid
from server.sampling import Sampling

MAX_CHOICES = 128
MAX_STOPS = 16
MAX_STOP_BYTES = 256  # bounds what a stream may have to hold back
MAX_TOP_LOGPROBS = 20
MAX_PROMPT_IDS = 1 << 19  # log-probabilities of named ids in one request

Finite = Annotated[float, Field(allow_inf_nan=False)]
TokenId = Annotated[int, Field(ge=0)]

# Parameters that can change nothing here, whatever their value.
INERT = frozenset(
    {
        "cache_salt",
        "metadata",
        "parallel_tool_calls",
        "priority",
        "prompt_cache_key",
        "prompt_cache_retention",
        "request_id",
        "safety_identifier",
        "service_tier",
        "store",
        "timings_per_token",
        "user",
    }
)

# Unsupported parameters, each with the values that mean "as if it were not there" (beside null).
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "add_special_tokens": (False,),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "continue_final_message": (False,),
    "documents": ([],),
    "dry_multiplier": (0, 0.0),
    "dynatemp_range": (0, 0.0),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "grammar": ("",),
    "guided_choice": ([],),
    "guided_grammar": ("",),
    "guided_json": ({},),
    "guided_regex": ("",),
    "include_stop_str_in_output": (False,),
    "json_schema": ({},),
    "length_penalty": (1, 1.0),
    "min_tokens": (0,),
    "mirostat": (0,),
    "modalities": (["text"],),
    "prompt_logprobs": (),
    "reasoning_effort": (),
    "repeat_penalty": (1, 1.0),
    "repetition_penalty": (1, 1.0),
    "response_format": ({"type": "text"},),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "stop_token_ids": ([],),
    "structured_outputs": ({},),
    "suffix": ("",),
    "tfs_z": (1, 1.0),
    "tool_choice": ("auto", "none"),
    "tools": ([],),
    "truncate_prompt_tokens": (-1,),
    "typical_p": (1, 1.0),
    "use_beam_search": (False,),
    "verbosity": (),
    "web_search_options": (),
    "xtc_probability": (0, 0.0),
}


class StreamOptions(BaseModel):
    """What a stream carries beside the text."""

    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool | None = None  # a last chunk with the token counts


class AnswerRequest(BaseModel):
    """The parameters that both kinds of completion share."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    temperature: Annotated[Finite, Field(ge=0, le=100)] | None = None
    top_p: Annotated[Finite, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None  # 0 and -1: all
    min_p: Annotated[Finite, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[str, Annotated[Finite, Field(ge=-100, le=100)]] | None = None
    ignore_eos: bool | None = None  # go on after the end token, for measurements
    cache_prompt: bool | None = None  # false: nothing kept of other prompts is used, for cold measurements

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def stops(self) -> tuple[bytes, ...]:
        """Return the stop strings as UTF-8."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(given) > MAX_STOPS:
            raise invalid(f"stop: {len(given)} strings, at most {MAX_STOPS}", "stop")
        if "" in given:
            raise invalid("stop: a stop string must not be empty", "stop")
        stops = tuple(stop.encode() for stop in given)
        if any(len(stop) > MAX_STOP_BYTES for stop in stops):
            raise invalid(f"stop: a stop string is longer than {MAX_STOP_BYTES} bytes", "stop")
        return stops

    def sampling(self, vocabulary: int) -> Sampling:
        """Return the sampling parameters; ApiError 400 for a bias on an id outside `vocabulary`."""
        bias: dict[int, float] = {}
        for key, value in (self.logit_bias or {}).items():
            if not (key.isascii() and key.isdigit() and int(key) < vocabulary):
                raise invalid(f"logit_bias: {key!r} is no token id below {vocabulary}", "logit_bias")
            bias[int(key)] = value
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=max(self.top_k or 0, 0),
            top_p=1.0 if self.top_p is None else self.top_p,
            min_p=self.min_p or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            logit_bias=bias,
        )


Request = TypeVar("Request", bound=BaseModel)


def parse(kind: type[Request], body: object) -> Request:
    """Return the checked request, or ApiError 400 that names the parameter."""
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object")
    known = kind.model_fields
    if not known.keys() >= body.keys():
        body = _without_neutral(body, known)
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise _described(error) from error


def _without_neutral(body: Mapping[str, Any], known: Mapping[str, object]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in body.items():
        if name in known:
            kept[name] = value
        elif name in INERT or value is None:
            continue
        elif name in NEUTRAL:
            if not any(type(value) is type(neutral) and value == neutral for neutral in NEUTRAL[name]):
                raise invalid(f"{name} is not supported by this server", name, "unsupported_parameter")
        else:
            near = difflib.get_close_matches(name, [*known, *NEUTRAL], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise invalid(f"unknown parameter: {name}{hint}", name, "unknown_parameter")
    return kept


def _described(error: ValidationError) -> Exception:
    """Turn pydantic's findings into one message about the outermost parameter that is wrong."""
    findings = error.errors(include_url=False, include_input=False, include_context=False)
    # Of the branches of a union the one that got furthest is the one that was meant.
    first = max(findings, key=lambda finding: len(finding["loc"]))
    where = [str(part) for part in first["loc"] if not str(part).startswith("list[")]
    param = where[0] if where else None
    path = ".".join(where)
    return invalid(f"{path}: {first['msg']}" if path else first["msg"], param)
