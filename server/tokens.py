"""`/tokenize` and `/detokenize`: the tokenizer and the chat template by themselves."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.answering import check_ids, check_model, tokens_of
from server.body import read_json
from server.chat import render
from server.schema import parse
from server.service import Service
from server.textschema import DetokenizeRequest, TokenizeRequest


async def tokenize(service: Service, request: Request) -> Response:
    """Answer `POST /tokenize` with the ids that the same text or messages have in a completion."""
    served = service.ready()
    asked = parse(TokenizeRequest, await read_json(request))
    check_model(asked.model, served)
    text, guard = asked.text(), None
    if text is None:
        rendered = render(served, asked, asked.messages or (), asked.tools or (), {})
        text, guard = rendered.text, rendered.guard
    ids = await tokens_of(served, text, guard)
    return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": served.context})


async def detokenize(service: Service, request: Request) -> Response:
    """Answer `POST /detokenize`; control tokens are spelt out, bytes that are no text become U+FFFD."""
    served = service.ready()
    asked = parse(DetokenizeRequest, await read_json(request))
    check_model(asked.model, served)
    check_ids(asked.tokens, served.vocabulary, "tokens")
    text = served.tokenizer.decode(asked.tokens, control=True)
    return JSONResponse({"prompt": text, "content": text})
