"""However a campaign ends, its server and its run end with it, and the run goes on the next time."""

from __future__ import annotations

import signal

import pytest
from campaign_site import Toy, gone

from toy_checkout import until


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_first_then_the_server_and_no_step_follows(toy: Toy, number: int) -> None:
    toy.write(text=("--worker",))
    toy.next("hang", 0)
    campaign = toy.start("--json")
    toy.waits()
    server = toy.server()
    campaign.send_signal(number)
    out, said = campaign.communicate(timeout=60)
    assert campaign.returncode == 6, said
    assert '"status": "cancelled"' in out
    assert (toy.root / "signalled").read_text() == str(int(signal.SIGINT))
    assert gone(server["pid"])
    assert gone(server["worker"])
    attempt = toy.state("text")["attempts"][-1]
    assert (attempt["exit_code"], attempt["server_exit_code"]) == (6, 0)
    assert not toy.folder("pictures").exists()
    toy.next(0, 0)
    done = toy.run()
    assert done.returncode == 0, done.stderr
    assert [each["verb"] for each in toy.said()] == ["run", "resume", "run"]


def test_a_signal_while_the_server_loads_ends_it(toy: Toy) -> None:
    toy.write("text", text=("--loads", "600"))
    campaign = toy.start()
    server = toy.server()
    campaign.send_signal(signal.SIGINT)
    _, said = campaign.communicate(timeout=60)
    assert campaign.returncode == 6, said
    assert gone(server["pid"])
    assert toy.said() == []


def test_a_server_that_takes_no_notice_is_killed(toy: Toy) -> None:
    toy.write("text", text=("--stubborn", "--worker"), stop_seconds=0.5)
    toy.next("hang")
    campaign = toy.start()
    toy.waits()
    server = toy.server()
    campaign.send_signal(signal.SIGINT)
    campaign.send_signal(signal.SIGTERM)
    campaign.communicate(timeout=60)
    assert campaign.returncode == 6
    assert gone(server["pid"])
    assert gone(server["worker"])


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_campaign_that_is_killed_leaves_neither_server_nor_run_and_goes_on(
    toy: Toy, stubborn: bool
) -> None:
    options = ("--worker", "--stubborn") if stubborn else ("--worker",)
    toy.write("text", text=options, stop_seconds=1.0)
    toy.next("hang")
    campaign = toy.start()
    toy.waits()
    server, run = toy.server(), toy.said()[0]
    campaign.kill()
    campaign.communicate(timeout=60)
    for pid in (server["pid"], server["worker"], run["pid"]):
        until(lambda pid=pid: gone(pid))
    assert toy.state("text")["attempts"][-1]["ended_at"] is None
    (toy.root / "server.json").unlink(missing_ok=True)
    toy.next(0)
    done = toy.run("text")
    assert done.returncode == 0, done.stderr
    assert [each["verb"] for each in toy.said()] == ["run", "resume"]


def test_a_step_that_is_being_carried_on_is_refused_to_another_command(toy: Toy) -> None:
    toy.next("hang")
    campaign = toy.start("text")
    toy.waits()
    second = toy.run("text")
    campaign.send_signal(signal.SIGINT)
    campaign.communicate(timeout=60)
    assert second.returncode == 5
    assert f"is being written by process {campaign.pid}" in second.stderr
    assert len(toy.said()) == 1
