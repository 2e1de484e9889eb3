"""Tools: what the model is shown, what of its words are calls, and what a choice forces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import openai
import pytest

from server.grammar import GrammarCompiler
from server.reply import Layout, Reply
from server.tokenizer import Tokenizer
from server.toolcalls import parse_calls
from server.toolformat import FORMATS, Tool, call_grammar, find_format, guided_grammar
from tests.server.http import toy as toy_model
from tests.server.http.running import Toy, toy_server

PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "é?", "parameters": PLACE}}
CLOCK = {"type": "function", "function": {"name": "clock.now", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich", "days": 2}}\n</tool_call>'
OTHER = '<tool_call>{"name": "clock.now"}</tool_call>'


@pytest.fixture(scope="module")
def toy() -> Iterator[Toy]:
    with toy_server(context=4096, template=toy_model.TOOLS) as running:
        yield running


def ask(client: openai.OpenAI, words: str, **parameters: Any) -> Any:
    return client.chat.completions.create(
        model="toy",
        messages=[{"role": "user", "content": f"say:{words}"}],
        **{"temperature": 0, "max_tokens": 2000, "tools": [WEATHER, CLOCK], **parameters},
    )


def test_a_call_is_parsed_and_ends_the_answer_as_tool_calls(client: openai.OpenAI) -> None:
    choice = ask(client, CALL).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "weather")
    assert json.loads(call.function.arguments) == {"city": "Zürich", "days": 2}
    assert call.id.startswith("call_")


def test_words_before_and_several_calls(client: openai.OpenAI) -> None:
    message = ask(client, f"Let me see.\n{CALL}\n{OTHER}\n").choices[0].message
    assert message.content == "Let me see.\n"
    assert [call.function.name for call in message.tool_calls] == ["weather", "clock.now"]
    assert [call.function.arguments for call in message.tool_calls][1] == "{}"
    assert len({call.id for call in message.tool_calls}) == 2


def test_a_call_has_the_same_id_when_asked_again_and_another_in_another_prompt(client: openai.OpenAI) -> None:
    def ident(words: str) -> str:
        return str(ask(client, words).choices[0].message.tool_calls[0].id)

    assert ident(CALL) == ident(CALL) != ident("x" + CALL)


def test_a_stream_of_calls_joins_to_the_same(client: openai.OpenAI) -> None:
    whole = ask(client, f"Well: {CALL}{OTHER}").choices[0].message
    calls: dict[int, dict[str, str]] = {}
    content, reasons = "", []
    for chunk in ask(client, f"Well: {CALL}{OTHER}", stream=True):
        delta = chunk.choices[0].delta
        content += delta.content or ""
        reasons.append(chunk.choices[0].finish_reason)
        for part in delta.tool_calls or []:
            call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
            call["id"] += part.id or ""
            call["name"] += part.function.name or ""
            call["arguments"] += part.function.arguments or ""
    assert content == whole.content == "Well: "
    assert [reason for reason in reasons if reason] == ["tool_calls"]
    assert list(calls.values()) == [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in whole.tool_calls
    ]


def test_the_clients_own_accumulator_of_streams(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="toy",
        messages=[{"role": "user", "content": f"say:{CALL}"}],
        temperature=0,
        max_tokens=400,
        tools=[WEATHER],
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "weather"


@pytest.mark.parametrize(
    "words",
    [
        "<tool_call>no json</tool_call> and more",
        '<tool_call>{"name": "weather", "arguments": {"city": "Zür',
        '<tool_call>{"name": 5}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": {"x": NaN}}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": [1]}</tool_call>é',
        "<tool_call></tool_call>",
        "<tool_cal",
        "a <tool_call>",
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_no_call_is_content_and_nothing_is_lost(
    client: openai.OpenAI, words: str, stream: bool
) -> None:
    if stream:
        text = "".join(
            choice.delta.content or ""
            for chunk in ask(client, words, stream=True)
            for choice in chunk.choices
        )
    else:
        choice = ask(client, words).choices[0]
        assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
        text = choice.message.content
    assert text == words


def test_a_call_cut_by_the_limit_is_content_and_length(client: openai.OpenAI) -> None:
    choice = ask(client, CALL, max_tokens=40).choices[0]
    assert choice.finish_reason == "length"
    assert CALL.encode().startswith(choice.message.content.encode())


def test_a_stop_string_within_a_call_does_not_end_it(client: openai.OpenAI) -> None:
    choice = ask(client, f"{CALL} city", stop=["city"]).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls[0].function.name == "weather"


def test_without_parallel_calls_the_first_ends_the_answer(client: openai.OpenAI) -> None:
    answer = ask(client, f"{CALL}{OTHER}", parallel_tool_calls=False)
    assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["weather"]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage.completion_tokens == len(CALL.encode())


def test_none_shows_no_tools_and_reads_no_calls(client: openai.OpenAI) -> None:
    choice = ask(client, CALL, tool_choice="none")
    assert choice.choices[0].message.content == CALL
    assert choice.choices[0].message.tool_calls is None
    assert choice.usage.prompt_tokens < ask(client, CALL).usage.prompt_tokens


def test_the_template_sees_the_tools_as_they_were_given(client: openai.OpenAI) -> None:
    bare = ask(client, "x", tools=[]).usage.prompt_tokens
    shown = ask(client, "x").usage.prompt_tokens
    assert shown - bare == len(f"<tools>{json.dumps([WEATHER, CLOCK], ensure_ascii=False)}</tools>".encode())


@pytest.mark.parametrize("parameters", [{}, {"seed": 3, "temperature": 1}])
def test_required_forces_calls_that_follow_their_schemas(
    client: openai.OpenAI, parameters: dict[str, Any]
) -> None:
    choice = ask(client, "I will not", tool_choice="required", tools=[WEATHER], **parameters).choices[0]
    assert choice.finish_reason in ("tool_calls", "length")
    assert choice.message.tool_calls
    for call in choice.message.tool_calls:
        assert call.function.name == "weather"
        jsonschema.validate(json.loads(call.function.arguments), PLACE)


def test_a_named_function_is_called_once(client: openai.OpenAI) -> None:
    choice = ask(
        client, "no", tool_choice={"type": "function", "function": {"name": "weather"}}, seed=1, temperature=1
    ).choices[0]
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "weather")
    jsonschema.validate(json.loads(call.function.arguments), PLACE)


def test_a_strict_function_is_called_by_its_schema_or_not_at_all(client: openai.OpenAI) -> None:
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    wrong = '<tool_call>\n{"name": "weather", "arguments": {"nonsense": 1}}\n</tool_call>'
    choice = ask(client, f"First, {wrong}", tools=[strict]).choices[0]
    assert choice.message.content == "First, "
    jsonschema.validate(json.loads(choice.message.tool_calls[0].function.arguments), PLACE)
    assert ask(client, "no call < at all", tools=[strict]).choices[0].message.content == "no call < at all"


def test_a_schema_for_the_content_stands_beside_tools(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [[1, 2]]}}}
    assert ask(client, "[1,2]", response_format=form).choices[0].message.content == "[1,2]"
    called = ask(client, CALL, response_format=form).choices[0]
    assert called.message.tool_calls[0].function.name == "weather"


def test_calls_and_results_go_back_through_the_template(client: openai.OpenAI) -> None:
    call = ask(client, CALL).choices[0].message.tool_calls[0]
    answer = client.chat.completions.create(
        model="toy",
        messages=[
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
            {"role": "user", "content": "say:thanks"},
        ],
        tools=[WEATHER],
        temperature=0,
    )
    assert answer.choices[0].message.content == "thanks"
    # The arguments reach the template as an object, which it writes as JSON itself.
    shown = '"arguments": {"city": "Zürich", "days": 2}'
    body = {
        "messages": [{"role": "assistant", "tool_calls": [call.model_dump()]}],
        "tools": [WEATHER],
    }
    tokens = httpx.post(f"{str(client.base_url).removesuffix('v1/')}tokenize", json=body).json()["tokens"]
    text = httpx.post(f"{str(client.base_url).removesuffix('v1/')}detokenize", json={"tokens": tokens}).json()
    assert shown in text["content"]


def refused(toy: Toy, **parameters: object) -> dict[str, Any]:
    body = {"model": "toy", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **parameters}
    answer = httpx.post(f"{toy.url}/v1/chat/completions", json=body)
    assert answer.status_code == 400, answer.text
    return dict(answer.json()["error"])


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"tools": [{"type": "retrieval"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "two words"}}]}, "tools"),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tools": [WEATHER] * 129}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": "sometimes"}, "tool_choice"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "clock"}}},
            "tool_choice",
        ),
        (
            {
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "wat"}}}],
                "tool_choice": "required",
            },
            "tools",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "no"}}]}
                ]
            },
            "messages",
        ),
    ],
)
def test_what_cannot_be_is_a_400(toy: Toy, parameters: dict[str, Any], param: str) -> None:
    assert refused(toy, **parameters)["param"] == param


def test_a_template_without_tools_says_so() -> None:
    with toy_server() as toy:
        found = refused(toy, tools=[WEATHER])
        assert found["code"] == "tools_not_supported"
        assert "no tools" in found["message"]
        call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        assert "tool_calls" in refused(toy, messages=[{"role": "assistant", "tool_calls": [call]}])["message"]
    with toy_server(template="{{ tools }} in a form of its own" + toy_model.TEMPLATE) as toy:
        assert "does not know" in refused(toy, tools=[WEATHER])["message"]


TOOLS = (
    Tool(
        "weather",
        {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    ),
    Tool("clock", {}),
)
# For each form: a template's words that show it, two calls as such a model writes them.
WRITTEN = {
    "qwen3-coder": (
        "tools <tool_call> <function=",
        "\n<function=weather>\n<parameter=city>\nSão\nPaulo\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
        "</function>\n",
    ),
    "hermes": (
        "tools <tool_call>",
        '\n{"name": "weather", "arguments": {"city": "São\\nPaulo", "days": 3}}\n',
    ),
    "mistral-args": ("tools [TOOL_CALLS] [ARGS]", 'weather[ARGS]{"city": "São\\nPaulo", "days": 3}'),
    "mistral": (
        "tools [TOOL_CALLS]",
        ' [{"name": "weather", "arguments": {"city": "São\\nPaulo", "days": 3}}]',
    ),
    "phi4-mini": (
        "tools <|tool_call|>",
        '[{"name": "weather", "arguments": {"city": "São\\nPaulo", "days": 3}}]',
    ),
    "llama3": (
        'tools {"name": function name, "parameters": dictionary}',
        '{"name": "weather", "parameters": {"city": "São\\nPaulo", "days": 3}}',
    ),
}


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_each_form_is_known_by_its_template_and_read(form: Any) -> None:
    template, written = WRITTEN[form.name]
    assert find_format(template) == form
    calls = parse_calls(form, TOOLS, written)
    assert calls is not None
    (call,) = calls
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "São\nPaulo", "days": 3})
    for broken in (written[:-4], "", "words", f"words {written}"):
        assert parse_calls(form, TOOLS, broken) is None


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("kind", ["required", "guided"])
def test_what_a_forms_grammar_forces_is_what_its_reader_reads(form: Any, kind: str) -> None:
    tokenizer = Tokenizer(toy_model.metadata())
    if kind == "required":
        text = call_grammar(form, TOOLS, tokenizer, several=True)
        opening = ""
    else:
        text = guided_grammar(form, TOOLS, tokenizer)
        opening = "" if form.bare else "I will look. "
    grammar = asyncio.run(GrammarCompiler(tokenizer).compile(text, "tools"))
    _, written = WRITTEN[form.name]
    begin = "" if form.bare else form.begin
    whole = opening + begin + written.replace("] [", "][").replace(" [{", "[{") + form.end
    walk = grammar.begin()
    for token in toy_model.ids(whole.encode()):
        assert walk.take(token), bytes([token - toy_model.FIRST_BYTE])
    assert walk.complete or walk.take(toy_model.END)
    reply = Reply(Layout(form=form, tools=TOOLS), ())
    content = reply.feed(whole.encode()) + reply.finish()
    assert content == opening
    assert [call.name for call in reply.take_calls()] == ["weather"]
