"""`evaluator.toml`: every key is known, and what it names fits together; the digest may stand in the lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay import pinset
from assay.errors import ConfigurationError
from assay.evaluator import load_evaluator
from assay.pinset import PinSet

WHOLE = """\
name = "whole"
version = "0.3.2.dev86"
python = "==3.12.*"
dialect = "eval"
command = "eval"
sources = ["envs", "engine"]
key_variable = "QWEN_API_KEY"

[environment]
HF_HUB_OFFLINE = "1"

[docker]
workdir = "/workspace"
cpu = 2
memory = 4

[[editable]]
name = "i3-logic"
version = "0.2.1"
source = "envs"
path = "environments/i3_logic"
requires = ["engine>=0.3"]

[[route]]
taskset = "i3-logic"
data = "i3-logic"
set = {"env.taskset.dataset.name" = "{snapshot}/logic"}
hub = true

[[program]]
name = "chat"
object = "engine.launch:CHAT"
sha256 = "HEX"
harnesses = ["null"]

[[program]]
name = "verify"
file = "envs:environments/code/verify.py"
harnesses = ["null"]
""".replace("HEX", "a" * 64)

LOCK = """\
[[source]]
name = "envs"
repository = "https://git.example/team/envs"
revision = "REVISION"

[[program]]
evaluator = "whole"
name = "verify"
sha256 = "HEX"
""".replace("REVISION", "1" * 40).replace("HEX", "b" * 64)


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "evaluators/whole"
    home.mkdir(parents=True)
    (home / "evaluator.toml").write_text(WHOLE)
    (tmp_path / "prime-envs.lock").write_text(LOCK)
    monkeypatch.setattr(pinset, "current", lambda: PinSet("other", tmp_path))
    return tmp_path


def test_the_whole_form_is_read(pins: Path) -> None:
    found = load_evaluator("whole")
    assert found.dialect == "eval"
    assert found.key_variable == "QWEN_API_KEY"
    assert found.editable[0].requires == ("engine>=0.3",)
    assert found.home == pins / "evaluators/whole"


def test_an_evaluator_of_suites_has_neither_dialect_nor_limits_and_runs_no_profile(pins: Path) -> None:
    text = WHOLE.replace('dialect = "eval"\ncommand = "eval"\n', "").replace("key_variable", "#")
    before, _, behind = text.partition("[docker]")
    path = pins / "evaluators/whole/evaluator.toml"
    path.write_text(before + "[[editable]]" + behind.partition("[[editable]]")[2])
    found = load_evaluator("whole")
    assert (found.dialect, found.command, found.key_variable, found.docker) == (None, None, None, None)
    with pytest.raises(ConfigurationError, match="runs no profile"):
        _ = found.native
    path.write_text(WHOLE)
    assert load_evaluator("whole").native.dialect == "eval"


def test_a_route_is_found_under_either_spelling(pins: Path) -> None:
    found = load_evaluator("whole")
    assert found.route_of("i3_logic") == found.route_of("i3-logic") == found.route[0]
    assert found.route_of("aime24") is None


def test_a_program_without_a_digest_has_the_locks(pins: Path) -> None:
    chat, verify = load_evaluator("whole").program
    assert (chat.sha256, verify.sha256) == ("a" * 64, "b" * 64)
    assert verify.place == "envs:environments/code/verify.py"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('key_variable = "QWEN_API_KEY"', 'key_varable = "QWEN_API_KEY"', 'did you mean "key_variable"'),
        ('dialect = "eval"', 'dialect = "lm-eval"', "dialect: Input should be"),
        (
            'command = "eval"\n',
            "",
            "command is missing: dialect, command, key_variable, docker are given together",
        ),
        ('name = "whole"', 'name = "other"', "its folder is 'whole'"),
        ('sources = ["envs", "engine"]', 'sources = ["engine"]', "which is not among the sources"),
        ('source = "envs"', 'source = "engine"\nbranch = "main"', "editable.0.branch: unknown key"),
        ('set = {"env.taskset.dataset.name" = "{snapshot}/logic"}\nhub = true', "", "leads nowhere"),
        ('object = "engine.launch:CHAT"', "", "give either object or file"),
        ('"envs:environments/code/verify.py"', '"envs:../verify.py"', "program.1.file"),
        ('name = "verify"', 'name = "unpinned"', "program.1.sha256: Field required"),
    ],
)
def test_what_does_not_fit_is_named(pins: Path, old: str, new: str, reason: str) -> None:
    path = pins / "evaluators/whole/evaluator.toml"
    path.write_text(WHOLE.replace(old, new, 1))
    with pytest.raises(ConfigurationError) as caught:
        load_evaluator("whole")
    assert reason in caught.value.why
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("link", ["/etc/passwd", "../outside", "a/../b", "one"])
def test_a_link_stays_in_the_working_directory(pins: Path, link: str) -> None:
    path = pins / "evaluators/whole/evaluator.toml"
    path.write_text(WHOLE.replace("hub = true", f'link = "{link}"'))
    with pytest.raises(ConfigurationError, match="link"):
        load_evaluator("whole")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("https://git.example", "http://git.example", "not a plain https address"),
        ("https://git.example", "https://user:secret@git.example", "not a plain https address"),
        ("1" * 40, "main", "revision 'main' is not of the form"),
        ('name = "envs"', 'name = "../envs"', "is not of the form"),
        ('name = "envs"', 'name = "envs"\ntag = "v1"', "tag and tag_revision belong together"),
        ('name = "envs"', 'name = "envs"\nbranch = "main"', "unknown key 'branch'"),
        ("b" * 64, "bad", "is not of the form"),
        ("[[source]]", "[[sources]]", "unknown table 'sources'"),
    ],
)
def test_a_source_lock_that_is_not_valid_is_refused(pins: Path, old: str, new: str, reason: str) -> None:
    (pins / "prime-envs.lock").write_text(LOCK.replace(old, new, 1))
    with pytest.raises(ConfigurationError, match=r"prime-envs\.lock cannot be used") as caught:
        load_evaluator("whole")
    assert reason in caught.value.why
