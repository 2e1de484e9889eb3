"""`/v1/completions`: from a checked request to generations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from server.answering import Prompt, answer, check_ids, check_model, first_choices, plan_of, tokens_of
from server.body import read_json
from server.completionwire import CompletionWire
from server.errors import invalid
from server.sampling import Ids
from server.schema import MAX_PROMPT_IDS, parse
from server.service import Served, Service
from server.textschema import CompletionRequest

NAMED_IDS = "prompt_logprob_ids"


async def completions(service: Service, request: Request) -> Response:
    """Answer `POST /v1/completions`."""
    served = service.ready()
    asked = parse(CompletionRequest, await read_json(request))
    check_model(asked.model, served)
    prompts, texts = await _prompts(served, asked)
    limit = 16 if asked.max_tokens is None else asked.max_tokens
    firsts = first_choices(served, asked, prompts, limit, asked.logprobs, "prompt")
    wanted = _wanted(served, asked, prompts)
    scored = bool(asked.echo) and asked.logprobs is not None
    firsts = [
        replace(first, prompt_logprobs=scored, prompt_ids=wanted[at] if wanted else None)
        for at, first in enumerate(firsts)
    ]
    wire = CompletionWire(
        served.name,
        served.fingerprint,
        served.tokenizer,
        logprobs=asked.logprobs is not None,
        usage=asked.include_usage,
        echoes=[text for text in texts for _ in range(asked.n or 1)] if asked.echo else None,
        scores=wanted is not None,
    )
    return await answer(served, plan_of(asked, firsts, wire), request)


async def _prompts(served: Served, asked: CompletionRequest) -> tuple[list[Prompt], list[str]]:
    """Return the prompts' ids and, for `echo`, their texts."""
    given = asked.prompt
    if isinstance(given, str):
        return [await tokens_of(served, given)], [given]
    prompts: list[Prompt] = []
    texts: list[str] = []
    whole = [given] if given and isinstance(given[0], int) else given
    for item in whole:
        if isinstance(item, str):
            prompts.append(await tokens_of(served, item))
            texts.append(item)
        elif isinstance(item, list):
            check_ids(item, served.vocabulary, "prompt")
            prompts.append(tuple(item))
            texts.append(served.tokenizer.decode(item, control=True))
    if not prompts:
        raise invalid("prompt: the list is empty", "prompt")
    return prompts, texts


def _wanted(
    served: Served, asked: CompletionRequest, prompts: Sequence[Prompt]
) -> list[tuple[Ids, ...]] | None:
    """Return, for each prompt and position, the ids to score; ApiError 400 for another shape."""
    given = asked.prompt_logprob_ids
    if given is None:
        return None
    if asked.stream or (asked.n or 1) > 1:
        raise invalid(f"{NAMED_IDS}: neither with stream nor with more than one choice", NAMED_IDS)
    lists = _by_prompt(given)
    if len(lists) != len(prompts):
        raise invalid(f"{NAMED_IDS}: lists for {len(lists)} prompts, but {len(prompts)} prompts", NAMED_IDS)
    total = 0
    out: list[tuple[Ids, ...]] = []
    for positions, prompt in zip(lists, prompts, strict=True):
        if len(positions) != len(prompt):
            raise invalid(
                f"{NAMED_IDS}: {len(positions)} positions, but the prompt has {len(prompt)} tokens", NAMED_IDS
            )
        if positions[0]:
            raise invalid(
                f"{NAMED_IDS}: nothing comes before the first position; its list is empty", NAMED_IDS
            )
        arrays = []
        for ids in positions:
            check_ids(ids, served.vocabulary, NAMED_IDS)
            total += len(ids)
            arrays.append(np.asarray(ids, np.int64))
        out.append(tuple(arrays))
    if total > MAX_PROMPT_IDS:
        raise invalid(f"{NAMED_IDS}: {total} ids in one request, at most {MAX_PROMPT_IDS}", NAMED_IDS)
    return out


def _by_prompt(given: list[list[int]] | list[list[list[int]]]) -> list[list[list[int]]]:
    """Return the lists prompt by prompt; those of a single prompt may stand without a list around them."""
    nested: list[list[list[int]]] = []
    single: list[list[int]] = []
    for outer in given:
        positions = [item for item in outer if isinstance(item, list)]
        nested.append(positions)
        single.append([item for item in outer if isinstance(item, int)])
    return nested if any(nested) else [single]
