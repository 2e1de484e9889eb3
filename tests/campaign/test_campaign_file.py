"""A campaign's file: what steps share and differ in, and what has no place in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import ConfigurationError
from assay.paths import CONFIGS
from assay.suite.campaign import Campaign, Server, find_campaign

SHARED = """\
description = "two"
[server]
command = ["serve", "${MODEL}", "--log", "${STEP}/log"]
health = "http://127.0.0.1:1/health"
[[step]]
name = "text"
suite = "some"
[step.server]
arguments = ["--context", "8"]
[[step]]
name = "pictures"
suite = "here/other.toml:most"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "two.toml"


def read(path: Path, text: str) -> Campaign:
    path.write_text(text)
    return find_campaign(str(path))


def servers(campaign: Campaign) -> list[Server]:
    return [step.server for step in campaign.step if step.server is not None]


def test_a_steps_own_server_is_laid_over_what_they_share(path: Path) -> None:
    campaign = read(path, SHARED)
    text, pictures = servers(campaign)
    assert campaign.name == "two"
    assert text.words({"MODEL": "m", "STEP": "s"}) == ("serve", "m", "--log", "s/log", "--context", "8")
    assert pictures.words({"STEP": "s"}) == ("serve", "${MODEL}", "--log", "s/log")
    assert text.places == ("MODEL",)
    assert [step.suite for step in campaign.step] == ["some", f"{path.parent}/here/other.toml:most"]


REFUSED = {
    "an unknown key": ('health = "', 'helth = "', 'did you mean "health"?'),
    "no steps": (SHARED[SHARED.index("[[step]]") :], "", "step: Field required"),
    "a step twice": ('name = "pictures"', 'name = "text"', "two steps are called 'text'"),
    "a path for a name": ('name = "text"', 'name = "../text"', "step.0.name"),
    "a command and a model": ("[server]\n", '[server]\nserve = "m"\n', "give either command, or serve"),
    "a key on the command line": ('"serve", ', '"serve", "--api-key", "x", ', "would put a secret"),
    "a key's variable on the command line": ("${MODEL}", "${MODEL_KEY}", "MODEL_KEY may be a secret"),
    "a secret variable in clear": ("[server]\n", '[server]\nenvironment = { HF_TOKEN = "x" }\n', "HF_TOKEN"),
    "a secret that is no secret": ("[server]\n", '[server]\nvariables = ["API_KEY"]\n', "API_KEY may be"),
    "a variable that is none": ("${MODEL}", "${a-b}${model}", "'model' is no name of a variable"),
    "a key that was written down": ('"serve"', '"sk-0123456789abcdef"', "holds a secret"),
    "a user in the address": ("http://127", "http://u:p@127", "holds a secret"),
    "a query in the address": ("/health", "/health?x=1", "where secrets hide"),
    "no address": ("http://127.0.0.1:1/health", "127.0.0.1:1", "not an http or https address"),
    "no time to wait": ("[server]\n", "[server]\nwait_seconds = 0.0\n", "wait_seconds"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_place_in_it_is_refused_and_named(path: Path, what: str) -> None:
    before, after, said = REFUSED[what]
    assert before in SHARED
    with pytest.raises(ConfigurationError) as caught:
        read(path, SHARED.replace(before, after))
    assert said in str(caught.value)
    assert "sk-0123456789abcdef" not in str(caught.value)


def test_a_private_files_name_may_stand_on_the_command_line(path: Path) -> None:
    text, _ = servers(read(path, SHARED.replace('"serve", ', '"serve", "--api-key-file", "/k", ')))
    assert text.command[1:3] == ("--api-key-file", "/k")


def test_a_name_that_is_not_there_is_met_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match=r'did you mean "qwen3-8-27b-nvfp4"\?'):
        find_campaign("qwen3-8-27b-nvfp")


@pytest.mark.parametrize(
    ("name", "context", "at_once"),
    [("qwen3-8-27b-nvfp4", "252928", "2"), ("qwen3-8-27b-groupwise", "262144", "4")],
)
def test_the_documents_two_steps_each_have_a_fresh_server(name: str, context: str, at_once: str) -> None:
    """Context, vision and requests at once, as the document gives them."""
    campaign = find_campaign(name)
    assert (CONFIGS / f"campaigns/{name}.toml").is_file()
    text, pictures = servers(campaign)
    assert [step.name for step in campaign.step] == ["text", "multimodal"]
    assert [step.suite for step in campaign.step] == [
        f"{name}-reasoning:text",
        f"{name}-reasoning:multimodal",
    ]
    for server, largest, vision in ((text, context, False), (pictures, "81920", True)):
        words = server.words({})
        assert words[words.index("--max-context") + 1] == largest
        assert words[words.index("--max-concurrency") + 1] == at_once
        assert words[words.index("--port") + 1] == "18080"
        assert ("--vision" in words) == vision
        assert server.health == "http://127.0.0.1:18080/health"
