"""What the operator's own key may sign and his run does not say: each claim, and the field that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def started_earlier(said: dict[str, Any]) -> None:
    said["started_at"] = "2020-01-01T00:00:00.000Z"


def ended_later(said: dict[str, Any]) -> None:
    said["ended_at"] = "2099-01-01T00:00:00.000Z"


def a_count(said: dict[str, Any]) -> None:
    said["asked"][0]["counts"]["planned"] += 1


def a_score(said: dict[str, Any]) -> None:
    said["scores"][0]["score"] = 0.987654


def a_narrower_interval(said: dict[str, Any]) -> None:
    said["scores"][0]["low"] = 0.6


def another_interval_method(said: dict[str, Any]) -> None:
    said["scores"][0]["method"] = "clustered-normal"


def another_confidence(said: dict[str, Any]) -> None:
    said["scores"][0]["confidence"] = 0.99


def a_score_left_out(said: dict[str, Any]) -> None:
    del said["scores"][0]


def another_server(said: dict[str, Any]) -> None:
    said["servers"][0]["endpoints"][0]["fingerprint"] = "assay-0000000000000000"


def another_model_of_the_server(said: dict[str, Any]) -> None:
    said["servers"][1]["endpoints"][0]["model_sha256"] = "0" * 64


def a_material_s_digest(said: dict[str, Any]) -> None:
    material(said, "model:toy-model")["digest"]["sha256"] = "0" * 64


def a_material_s_address(said: dict[str, Any]) -> None:
    material(said, "model:toy-model")["uri"] = "pkg:pypi/other@1"


def a_material_left_out(said: dict[str, Any]) -> None:
    said["materials"].remove(material(said, "tree:server"))


def a_material_more(said: dict[str, Any]) -> None:
    said["materials"].append({"name": "data:clean", "digest": {"sha256": "0" * 64}})


def a_model_asked_for(said: dict[str, Any]) -> None:
    said["asked"][0]["model"] = "another-model"


def sampling(said: dict[str, Any]) -> None:
    said["asked"][0]["sampling"]["temperature"] = 0.7


def a_launch_file(said: dict[str, Any]) -> None:
    said["asked"][0]["launch"][0]["digest"]["sha256"] = "0" * 64


def a_clean_worktree(said: dict[str, Any]) -> None:
    said["checkout"].update(clean=not said["checkout"]["clean"])


def another_commit(said: dict[str, Any]) -> None:
    said["checkout"]["commit"] = "0" * 40


def a_pinned_environment(said: dict[str, Any]) -> None:
    said["environment"].update(kind="nix", pinned=True)


def a_cut_network(said: dict[str, Any]) -> None:
    said["environment"]["egress"] = "cut"


def another_tool(said: dict[str, Any]) -> None:
    said["environment"]["tools"]["python"]["sha256"] = "0" * 64


def another_status(said: dict[str, Any]) -> None:
    said["status"] = "partial"


def fewer_problems(said: dict[str, Any]) -> None:
    said["problems"] = 7


def never_resumed(said: dict[str, Any]) -> None:
    said["resumed"] = 3


def other_pins(said: dict[str, Any]) -> None:
    said["pins"] = "another"


def another_configuration(said: dict[str, Any]) -> None:
    said["configuration"]["sha256"] = "0" * 64


def the_name_in_other_letters(said: dict[str, Any]) -> None:
    said["name"] = "t\u043ey"


def material(said: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in said["materials"] if each["name"] == name)


SAYS: dict[Callable[[dict[str, Any]], None], str] = {
    started_earlier: "predicate.started_at",
    ended_later: "predicate.ended_at",
    a_count: "predicate.asked[0].counts.planned",
    a_score: "predicate.scores[0].score",
    a_narrower_interval: "predicate.scores[0].low",
    another_interval_method: "predicate.scores[0].method",
    another_confidence: "predicate.scores[0].confidence",
    a_score_left_out: "predicate.scores",
    another_server: "predicate.servers[0].endpoints[0].fingerprint",
    another_model_of_the_server: "predicate.servers[1].endpoints[0].model_sha256",
    a_material_s_digest: "digest.sha256",
    a_material_s_address: "uri",
    a_material_left_out: "predicate.materials",
    a_material_more: "predicate.materials",
    a_model_asked_for: "predicate.asked[0].model",
    sampling: "predicate.asked[0].sampling.temperature",
    a_launch_file: "predicate.asked[0].launch[0].digest.sha256",
    a_clean_worktree: "predicate.checkout.clean",
    another_commit: "predicate.checkout.commit",
    a_pinned_environment: "predicate.environment.pinned",
    a_cut_network: "predicate.environment.egress",
    another_tool: "predicate.environment.tools.python.sha256",
    another_status: "predicate.status",
    fewer_problems: "predicate.problems",
    never_resumed: "predicate.resumed",
    other_pins: "predicate.pins",
    another_configuration: "predicate.configuration.sha256",
    the_name_in_other_letters: "predicate.name",
}
