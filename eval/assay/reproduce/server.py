"""Whom to ask, and who that is compared with whom the run asked.

A run is a stranger's file: it may name an address, but never which of this machine's secrets goes there. So
an address that the run names is asked only where the user says its target's name, and with a key only where
he says its file; the variables that hold a key's place are for addresses that he gives himself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import models
from assay.coordinator.targets import FIRST, same_start
from assay.errors import ConfigurationError, VerificationError
from assay.files import read_json
from assay.names import nearest
from assay.paths import OWNED, owned_directory
from assay.plan import OwnServer, Plan
from assay.reproduce.records import first_record
from assay.run.address import check_url
from assay.run.conduct import forget_the_dead, private_folder
from assay.run.endpoint import Endpoint, probe
from assay.run.identity import Identity, differences
from assay.run.key import Key, find_key, read_key
from assay.run.serving import serve
from assay.suite.suite import Suite
from assay.suite.target import Requests, Target

OWN = "own"
SLOTS = 4


@dataclass(frozen=True)
class Given:
    """What the user says of the server.

    Attributes:
        target: A target's name; "own" in a profile's run whose server the run started itself.
        base_url: Another server's address.
        model: The name to ask it for; None for the run's.
        key_file: Its key.
    """

    target: str | None = None
    base_url: str | None = None
    model: str | None = None
    key_file: Path | None = None


@dataclass(frozen=True)
class Wanted:
    """The server to ask.

    Attributes:
        asked: The target of the run whose answers are held against it; "own" or "other" in a profile's run.
        target: How it is asked.
        own: What is to be served here; None for a server that is there.
        key: Its key.
        record: Where the run recorded who its server was.
        model: The name that the run asked for.
    """

    asked: str
    target: Target
    own: OwnServer | None
    key: Key | None
    record: Path
    model: str


@dataclass(frozen=True)
class Reached:
    """A server that answers.

    Attributes:
        endpoints: Where.
        identity: Who the first of them says it is.
        before: The run's record of its server; empty where it has none.
        differences: How the two differ, by name.
    """

    endpoints: tuple[Endpoint, ...]
    identity: Identity
    before: Mapping[str, Any]
    differences: tuple[str, ...]


def of_profile(run: Path, plan: Plan, given: Given) -> Wanted:
    """The server to ask for a profile's run; ConfigurationError where the options name none."""
    record = first_record(run, plan)
    model = plan.server.model
    if given.base_url is not None:
        if given.target is not None:
            raise ConfigurationError(
                "--target and --base-url name two servers", "a profile's run had one", "leave one of them out"
            )
        return Wanted(plan.server.kind, _there(given, model), None, _key(given), record, model)
    if not isinstance(plan.server, OwnServer):
        raise ConfigurationError(
            f"{run} asked a server that was there already",
            f"it was at {plan.server.base_url}, and what a run names is not asked unseen",
            f"name it, if it is the one: --base-url {plan.server.base_url}",
        )
    if given.target not in (None, OWN):
        raise ConfigurationError(
            f'{run} had no target "{given.target}"', nearest(str(given.target), [OWN]), f"--target {OWN}"
        )
    _served_here(given)
    target = Target(name=OWN, serve=model, model=model, max_concurrency=plan.server.slots)
    return Wanted(OWN, target, plan.server, None, record, model)


def of_suite(run: Path, suite: Suite, given: Given) -> Wanted:
    """The server to ask for a suite's run; ConfigurationError where the options name none."""
    asked = {target.name: target for target in suite.targets if target.protocol != "none"}
    name = given.target
    if not asked:
        raise ConfigurationError(f"{run} asked nobody", "the protocol of its targets is none", "")
    if name is None and len(asked) == 1:
        (only,) = asked.values()
        # What this machine serves itself is asked at once; an address is a stranger's until it is said.
        name = only.name if only.serve is not None or given.base_url is not None else None
    if name is None or name not in asked:
        raise ConfigurationError(
            f'{run} had no target "{name}"' if name is not None else f"{run} does not say whom to ask",
            nearest(name or "", asked),
            "--target NAME; or --target NAME --base-url URL, to ask elsewhere what that target was asked",
        )
    target = asked[name]
    record = run / "provenance" / "server" / f"{FIRST}.{name}.json"
    model = target.serve or target.model
    if given.base_url is not None:
        return Wanted(name, _there(given, model, target.request), None, _key(given), record, model)
    if target.serve is not None:
        _served_here(given)
        own = OwnServer(model=target.serve, slots=target.max_concurrency)
        return Wanted(name, target, own, None, record, model)
    wants = target.api_key_env or target.key_file
    if wants and given.key_file is None:
        raise ConfigurationError(
            f'the target "{name}" wants a key',
            f"the run names {wants} for it, and no run decides which secret goes to which address",
            f"look at its address ({', '.join(target.base_url)}), then give it: --key-file /absolute/path",
        )
    key = None if given.key_file is None else read_key(given.key_file)
    if given.model is not None:
        target = target.model_copy(update={"model": given.model})
    return Wanted(name, target, None, key, record, model)


def _there(given: Given, model: str, request: Requests | None = None) -> Target:
    return Target(
        name="given",
        base_url=(check_url(str(given.base_url)),),
        model=given.model or model,
        max_concurrency=SLOTS,
        request=request or Requests(),
    )


def _key(given: Given) -> Key | None:
    return find_key(given.key_file, os.environ)


def _served_here(given: Given) -> None:
    if given.key_file is not None or given.model is not None:
        raise ConfigurationError(
            "--key-file and --model are for a server that is there",
            "this one is started here, under a key and a name of its own",
            "leave them out, or name the server: --base-url URL",
        )


@contextmanager
def reached(wanted: Wanted) -> Iterator[Reached]:
    """The server while it can be asked: started, where it is to be, and identified.

    Raises:
        PrerequisiteError: it does not start, or does not answer as it must.
        VerificationError: the run's record of its server cannot be read.
    """
    before = _recorded(wanted.record)
    if wanted.own is None:
        there = [Endpoint(url, wanted.target.model, wanted.key) for url in wanted.target.base_url]
        yield _identified(there, before)
        return
    private = owned_directory(OWNED / "private", mode=0o700)
    forget_the_dead(private)
    scratch = private_folder(private, "reproduce")
    try:
        model = models.verify(wanted.own.model)
        with serve(wanted.own, model, scratch, scratch.path / "server.log", lambda: False) as endpoint:
            yield _identified([endpoint], before)
    finally:
        scratch.remove()


def _identified(endpoints: Sequence[Endpoint], before: Mapping[str, Any]) -> Reached:
    found = [probe(endpoint) for endpoint in endpoints]
    differ: list[str] = []
    for number, identity in enumerate(found):
        place = f"endpoint {number}: " if len(found) > 1 else ""
        told = differences(_one(before), _one(identity.describe())) if before else []
        differ += [place + what for what in told]
    return Reached(tuple(endpoints), found[0], before, tuple(differ))


def _one(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """A record of a server without when its container was started: that may be another time."""
    (found,) = same_start({"endpoints": [dict(record)]})["endpoints"]
    return dict(found)


def _recorded(path: Path) -> Mapping[str, Any]:
    """Who the run's server was: its record, or of a pool the first endpoint's; empty where there is none."""
    try:
        value = read_json(path)
        found = value["endpoints"][0] if "endpoints" in value else value
        if not isinstance(found, dict):
            raise ValueError("it is no record of a server")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise VerificationError(f"{path} cannot be read", str(error), "") from error
    return found
