"""A campaign: each step has its own server and its own run, is passed by when done and goes on when not."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler

import pytest
from campaign_site import TOY, Toy, gone

from served_bytes import Served


def test_each_step_is_asked_of_a_server_of_its_own_that_ends_with_it(toy: Toy) -> None:
    toy.write(text=("--context", "9"), pictures=("--context", "4", "--worker"))
    done = toy.run()
    assert done.returncode == 0, done.stderr
    first, second = toy.said()
    assert (first["verb"], second["verb"]) == ("run", "run")
    assert first["health"] not in (None, second["health"])
    assert first["suite"] == str(toy.root / "toy.toml")
    for step in ("text", "pictures"):
        assert (toy.folder(step) / "server-1.log").read_text().endswith("ended in peace\n")
        state = toy.state(step)
        (attempt,) = state["attempts"]
        assert (attempt["exit_code"], attempt["server_exit_code"]) == (0, 0)
        assert (toy.folder(step) / state["run"] / "state.json").is_file()
    assert not (toy.root / "server.json").exists()
    assert done.stdout.count("results of") == 2


def test_a_second_command_passes_by_what_is_done_and_starts_nothing(toy: Toy) -> None:
    toy.run()
    done = toy.run("--json")
    assert done.returncode == 0, done.stderr
    assert len(toy.said()) == 2
    answer = json.loads(done.stdout)
    assert [step["passed_by"] for step in answer["steps"]] == [True, True]
    assert answer["status"] == "done"
    assert not (toy.folder("text") / "server-2.log").exists()


@pytest.mark.parametrize(("code", "status"), [(4, "partial"), (5, "failed")])
def test_what_is_unfinished_is_resumed_and_what_is_finished_is_not_asked_again(
    toy: Toy, code: int, status: str
) -> None:
    toy.next(code, 0)
    done = toy.run("--json")
    answer = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, answer["status"]) == (code, status), done.stderr
    assert [step["exit_code"] for step in answer["steps"]] == [code, 0], "a step does not stop the next"
    toy.next(0)
    done = toy.run()
    assert done.returncode == 0, done.stderr
    resumed = toy.said()[-1]
    assert (resumed["verb"], len(toy.said())) == ("resume", 3)
    assert resumed["run"] == str(toy.folder("text") / toy.state("text")["run"])
    assert [each["verb"] for each in toy.state("text")["attempts"]] == ["run", "resume"]


def test_one_step_can_be_named(toy: Toy) -> None:
    assert toy.run("pictures").returncode == 0
    assert toy.folder("pictures").is_dir()
    assert not toy.folder("text").exists()
    done = toy.run("picture")
    assert done.returncode == 2
    assert 'did you mean "pictures"?' in done.stderr


def test_a_step_goes_on_only_with_what_it_was_begun_with(toy: Toy) -> None:
    toy.next(4)
    toy.run("text")
    toy.write(text=("--context", "8192"))
    done = toy.run("text")
    assert done.returncode == 5, done.stderr
    assert "server.command was" in done.stderr
    assert "8192" in done.stderr
    assert "--new" in done.stderr.partition("next:")[2]
    assert len(toy.said()) == 1, "nothing was asked of another server"
    toy.write()
    suite = toy.root / "toy.toml"
    suite.write_text(suite.read_text().replace('dataset = "mock"', 'dataset = "mock"\nlimit = 2'))
    done = toy.run("text")
    assert done.returncode == 5, done.stderr
    assert "suite.digest was" in done.stderr
    toy.next(0)
    assert toy.run("text", "--new").returncode == 0
    assert [each["verb"] for each in toy.said()] == ["run", "run"]
    state = toy.state("text")
    assert len(state["given_up"]) == 1
    assert state["run"] not in state["given_up"]


def test_a_run_that_is_alive_is_left_alone(toy: Toy) -> None:
    toy.next(4)
    toy.run("text")
    run = toy.folder("text") / toy.state("text")["run"]
    (run / "state.json").write_text('{"phase": "live"}')
    done = toy.run("text")
    assert done.returncode == 2
    assert "is alive" in done.stderr
    assert not (toy.folder("text") / "server-2.log").exists()


def test_a_run_that_ended_well_though_nobody_was_left_to_write_it_down_is_done(toy: Toy) -> None:
    toy.next(4)
    toy.run("text")
    run = toy.folder("text") / toy.state("text")["run"]
    (run / "state.json").write_text('{"phase": "done"}')
    assert toy.run("text").returncode == 0
    assert len(toy.said()) == 1
    assert toy.state("text")["attempts"][-1]["exit_code"] == 0


def test_a_plan_shows_servers_standings_and_suites_and_starts_nothing(toy: Toy) -> None:
    toy.next(4)
    toy.run("text")
    before = len(toy.said())
    done = toy.run("--plan", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    text, pictures = answer["steps"]
    assert text["standing"].startswith("to be resumed: ")
    assert pictures["standing"] == "not begun"
    assert f"--port {toy.port}" in pictures["server"]
    assert pictures["plan"]["expected"] == 3
    assert len(toy.said()) == before
    assert not toy.folder("pictures").exists()
    assert "plan of" in toy.run("--plan").stdout


def test_a_server_that_breaks_is_told_in_its_own_words_and_the_next_step_goes_on(toy: Toy) -> None:
    toy.write(text=("--breaks",))
    toy.next(0)
    done = toy.run()
    assert done.returncode == 3, done.stderr
    assert "ended with exit code 7 before it could be asked" in done.stderr
    assert "no memory for this context" in done.stderr
    assert toy.state("text")["attempts"][-1]["server_exit_code"] == 7
    assert toy.state("pictures")["attempts"][-1]["exit_code"] == 0
    assert len(toy.said()) == 1


def test_a_server_that_loads_is_waited_for_and_not_for_ever(toy: Toy) -> None:
    toy.write(text=("--loads", "0.5"))
    assert toy.run("text").returncode == 0
    toy.write("slow", slow=("--loads", "600"))
    toy.campaign.write_text(toy.campaign.read_text().replace("wait_seconds = 30.0", "wait_seconds = 0.5"))
    done = toy.run("slow")
    assert done.returncode == 3
    assert "it answered 503" in done.stderr
    assert len(toy.said()) == 1


def test_what_answers_in_the_servers_place_already_is_not_taken_for_it(toy: Toy) -> None:
    class Stale(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    with Served(Stale) as stale:
        text = toy.campaign.read_text().replace(
            f"127.0.0.1:{toy.port}/health", f"127.0.0.1:{stale.server_port}/"
        )
        toy.campaign.write_text(text)
        done = toy.run("text")
    assert done.returncode == 3
    assert "something answers at" in done.stderr
    assert toy.said() == []


def test_a_server_that_ends_in_mid_run_ends_the_run_which_can_go_on(toy: Toy) -> None:
    toy.write("text", text=("--dies", "die"))
    toy.next("hang", 0)
    campaign = toy.start("text")
    toy.waits()
    (toy.root / "die").touch()
    _, said = campaign.communicate(timeout=60)
    assert campaign.returncode == 5, said
    assert "the server ended with exit code 9 before its run did" in said
    assert (toy.root / "signalled").read_text() == "2"
    (toy.root / "die").unlink()
    assert toy.run("text").returncode == 0
    assert [each["verb"] for each in toy.said()] == ["run", "resume"]


def test_variables_are_handed_on_by_name_and_secrets_are_written_nowhere(toy: Toy) -> None:
    canary = "canary-3f9ac2d17e"
    toy.write(
        "text",
        server={"variables": ["CHOSEN"], "secrets": ["SERVER_KEY"], "environment": {"FIXED": "1"}},
        text=("--context", "${ARTIFACT}:${STEP}"),
    )
    toy.next("hang")
    assert "SERVER_KEY is not set" in toy.run("text", ARTIFACT="x").stderr
    campaign = toy.start("text", ARTIFACT="/a b", SERVER_KEY=canary, CHOSEN="2", OTHER="3")
    toy.waits()
    server = toy.server()
    campaign.terminate()
    out, err = campaign.communicate(timeout=60)
    assert campaign.returncode == 6
    assert server["words"][-1] == f"/a b:{toy.folder('text')}"
    given = server["variables"]
    assert (given["CHOSEN"], given["FIXED"], given["SERVER_KEY"]) == ("2", "1", canary)
    assert "OTHER" not in given
    assert "ARTIFACT" not in given
    assert "a server, key ***" in (toy.folder("text") / "server-1.log").read_text()
    assert canary not in out + err
    for path in toy.folder("text").rglob("*"):
        assert not path.is_file() or canary.encode() not in path.read_bytes(), path
    assert gone(server["pid"])


def test_a_program_that_is_not_there_is_missed_before_anything_is_started(toy: Toy) -> None:
    toy.write("text", "pictures")
    text = toy.campaign.read_text() + '[step.server]\ncommand = ["no-such-server-program"]\n'
    toy.campaign.write_text(text)
    done = toy.run()
    assert done.returncode == 3
    assert "there is no program no-such-server-program" in done.stderr
    assert toy.said() == []


def test_a_suite_that_cannot_be_run_is_refused_before_any_server_is_started(toy: Toy) -> None:
    suite = toy.root / "toy.toml"
    good = suite.read_text()
    (toy.root / "other.toml").write_text(
        good.replace("[target.server]", '[target.server]\napi_key_env = "NOT_SET_KEY"')
    )
    text = toy.campaign.read_text()
    toy.campaign.write_text("other.toml".join(text.rsplit("toy.toml", 1)))
    done = toy.run()
    assert done.returncode == 2, done.stderr
    assert "NOT_SET_KEY" in done.stderr
    assert not toy.folder("text").exists()
    assert toy.said() == []


def test_a_step_without_a_server_asks_the_one_that_is_there(toy: Toy) -> None:
    toy.campaign.write_text('description = "one"\n[[step]]\nname = "text"\nsuite = "toy.toml"\n')
    done = toy.run()
    assert done.returncode == 0, done.stderr
    assert toy.state("text")["attempts"][0]["server_log"] is None
    assert toy.said()[0]["health"] is None
    assert TOY.is_dir()
