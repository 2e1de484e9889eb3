"""Was what ran what was pinned, did it stay so, and is it what this checkout pins?"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay import data, dialect, models, sources
from assay.audit.case import Case, Recorded
from assay.audit.check import Check, judge
from assay.digest import combined_digest, sha256_bytes, sha256_file, tree_digests
from assay.errors import AssayError, ConfigurationError, PrerequisiteError
from assay.evaluator import load_evaluator
from assay.paths import ROOT
from assay.pinset import PRODUCTION
from assay.plan import EntryPlan, OwnServer, Part, overrides
from assay.profile import merge
from assay.record import dialects
from assay.record.asked import sampling, table
from assay.record.results_v0 import METADATA
from assay.record.sample import TaskPlan
from assay.run import interpreter, native, route
from assay.run.freeze import changes, during, expected, names
from assay.run.tasks import list_tasks


def unchanged(case: Case) -> Check:
    """Every frozen input is the same after each entry as before the first, of data each entry's own."""
    evaluator = load_evaluator(case.plan.evaluator)
    faults = []
    for entry in case.plan.entries:
        known = during(case.before, case.plan, evaluator, entry)
        after = case.inputs(f"after-{entry.name}")
        faults += [f"{name} changed during {entry.name}" for name in changes(known, after)]
    return judge("inputs unchanged", faults, f"{len(case.before)} frozen inputs, the same before and after")


def pins(case: Case) -> Check:
    """The pins are production's, their recorded copies were frozen, and they pin what ran."""
    faults = []
    if case.plan.pins != PRODUCTION:
        faults.append(f'the pin set is "{case.plan.pins}": only {PRODUCTION} is what a profile stands for')
    for name in names(case.before, "file"):
        if name.rpartition("/")[2] == "pins.toml" and case.plan.pins == PRODUCTION:
            faults.append(f"file:{name} was frozen, so another pin set was in force")
        copy = case.provenance / "pins" / name
        if not copy.is_file():
            faults.append(f"provenance/pins/{name} is missing")
        elif sha256_file(copy) != case.before[f"file:{name}"]:
            faults.append(f"provenance/pins/{name} is not the file that was frozen")
    for entry in case.plan.entries:
        for file, text in entry.launch.items():
            if case.before.get(f"launch:{entry.name}/{file}") != sha256_bytes(text.encode("utf-8")):
                faults.append(f"launch:{entry.name}/{file} is not the text in resolved.json")
    server = case.plan.server
    if isinstance(server, OwnServer):
        pinned = _model_pin(case, server.model)
        if pinned is None or pinned != case.before.get(f"model:{server.model}"):
            faults.append(
                f"model:{server.model} was {case.before.get(f'model:{server.model}')}, pinned {pinned}"
            )
    if case.plan.runtime == "docker" and case.before.get("sandbox:image") != case.plan.image:
        faults.append(f"sandbox:image was {case.before.get('sandbox:image')}, planned {case.plan.image}")
    return judge("pins", faults, "locks, launch files, model and image are the pinned ones")


def _model_pin(case: Case, name: str) -> str | None:
    try:
        pin = models.pins(case.provenance / "pins" / "models.lock").get(name)
    except ConfigurationError:
        return None
    return None if pin is None else pin.sha256


def checkout(case: Case) -> Check:
    """Locks and sources of this checkout are the ones that were frozen, and no input was left out."""
    wanted = expected(case.plan, load_evaluator(case.plan.evaluator))
    faults = [f"{name} was not frozen" for name in sorted(wanted - case.before.keys())]
    faults += [f"{name} was frozen, but is no input" for name in sorted(case.before.keys() - wanted)]
    for name in names(sorted(wanted & case.before.keys()), "file"):
        path = ROOT / name
        if not path.is_file() or sha256_file(path) != case.before[f"file:{name}"]:
            faults.append(f"{name} of this checkout is not the one the run froze")
    for name in names(sorted(wanted & case.before.keys()), "tree"):
        path = ROOT / name
        if not path.is_dir() or combined_digest(tree_digests(path)) != case.before[f"tree:{name}"]:
            faults.append(f"{name}/ of this checkout is not the one the run froze")
    odd, absent = source_faults(case, names(sorted(wanted & case.before.keys()), "source"))
    faults += odd
    if faults:
        commit = case.json(case.provenance / "worktree.json").get("commit")
        faults.append(f"to audit with what the run froze: git checkout {commit}")
    elif absent:
        return Check("checkout", "UNKNOWN", (*absent, "to look at them: eval/scripts/setup --sources-only"))
    return judge("checkout", faults, "locks and sources of this checkout are the frozen ones")


def source_faults(case: Recorded, frozen: list[str]) -> tuple[list[str], list[str]]:
    """What is odd about the upstream sources here, and which of them are not here."""
    odd, absent = [], []
    for name in frozen:
        try:
            if sources.verify(name).digest != case.before[f"source:{name}"]:
                odd.append(f"the source {name} of this checkout is not the one the run froze")
        except PrerequisiteError as error:
            absent.append(error.what)
        except AssayError as error:
            odd.append(f"{error.what}: {error.why}")
    return odd, absent


def worktree(case: Recorded) -> Check:
    """The run was made from a commit, not from edited files."""
    found = case.json(case.provenance / "worktree.json")
    if found.get("clean") is True:
        return Check("worktree", "PASS", (f"clean, commit {found.get('commit')}",))
    paths = found.get("changed")
    count = len(paths) if isinstance(paths, list) else "?"
    return Check("worktree", "UNKNOWN", (f"dirty: {count} path(s) differ from commit {found.get('commit')}",))


def configuration(case: Case) -> Check:
    """What the evaluator resolved is the launch files plus the declared overrides."""
    evaluator = load_evaluator(case.plan.evaluator)
    speech = dialect.of(case.plan.dialect)
    faults = []
    for entry in case.plan.entries:
        for part in entry.parts:
            name = f"provenance/launch/{part.folder}/overrides.json"
            recorded = case.json(case.run / name)
            base_url = str(speech.base_url(recorded) or "")
            if not _planned_address(case, base_url):
                faults.append(f"{name} asks {base_url}, which is not planned")
            output = Path(str(recorded.get("output_dir", "")))
            run = speech.run_directory(output, part.folder)
            routed = route.declared(evaluator, case.plan.taskset(entry), recorded)
            routed = merge(routed, _interpreter(case, entry))
            model = case.plan.server.model
            declared = overrides(case.plan, entry, part, base_url, model, run, run.name, routed)
            if declared != recorded:
                faults.append(f"{name} overrides more than is declared")
            faults += _launched(case, part)
            faults += _resolved(case, entry, part, recorded)
    return judge("configuration", faults, "the evaluator's resolved configuration is launch plus overrides")


def _interpreter(case: Case, entry: EntryPlan) -> dict[str, Any]:
    """What the harness is told of the recorded image's Python, where the entry names another."""
    if case.plan.runtime != "docker":
        return {}
    image = case.json(case.provenance / "sandbox.json")["image"]
    return interpreter.instead(case.plan, entry, str(image["python"]), str(image["python_version"]))


def _resolved(case: Case, entry: EntryPlan, part: Part, recorded: Mapping[str, Any]) -> list[str]:
    """What the evaluator says it resolved, against what it was given."""
    asked = merge(case.plan.native(entry), recorded)
    if case.plan.dialect == "vf-eval-v0":
        return lacking_metadata(case, entry, part, asked)
    if case.plan.dialect == "vf-eval":
        # Verifiers 0.4 resolves `extra_body` into the table around it.
        asked = {**asked, "sampling": sampling(case.plan.dialect, asked)}
    name = f"{part.folder}/configs/resolved/eval.json"
    return lacking(asked, case.json(case.run / name), name)


def lacking_metadata(case: Case, entry: EntryPlan, part: Part, asked: Mapping[str, Any]) -> list[str]:
    """What Verifiers 0.1 says it did, against what it was given.

    It writes no resolved configuration; its metadata repeat what decides a score, and count the tasks.
    """
    path = dialects.of(case.plan.dialect).record(case.run / part.folder).with_name(METADATA)
    said = {
        "env_id": asked.get("env_id"),
        "env_args": asked.get("env_args", {}),
        "model": asked.get("model"),
        "base_url": asked.get("api_base_url"),
        "num_examples": entry.tasks,
        "rollouts_per_example": part.rollouts,
        "sampling_args": table(asked),
    }
    return lacking(said, case.json(path), path.relative_to(case.run).as_posix())


def _launched(case: Case, part: Part) -> list[str]:
    """What is odd about the recorded command; paths differ from machine to machine, names do not."""
    name = f"provenance/launch/{part.folder}/command.json"
    words = case.json(case.run / name).get("command")
    expected = native.command(case.plan, [Path(file) for file in dialect.of(case.plan.dialect).files])
    shown = [Path(str(word)).name for word in words] if isinstance(words, list) else None
    if shown == [Path(word).name for word in expected]:
        return []
    return [f"{name}: is not the command that this evaluator is launched with"]


def _planned_address(case: Case, base_url: str) -> bool:
    server = case.plan.server
    if isinstance(server, OwnServer):
        return base_url.startswith("http://127.0.0.1:")
    return base_url == server.base_url


def lacking(asked: Any, resolved: Any, path: str) -> list[str]:
    """Every leaf that was asked for and is not so in the resolved configuration, by its path."""
    if isinstance(asked, Mapping):
        if not isinstance(resolved, Mapping):
            return [f"{path}: asked {dict(asked)!r}, resolved {resolved!r}"]
        return [line for key in asked for line in lacking(asked[key], resolved.get(key), f"{path}.{key}")]
    if isinstance(asked, list):
        if not isinstance(resolved, list) or len(resolved) != len(asked):
            return [f"{path}: asked {asked!r}, resolved {resolved!r}"]
        pairs = zip(asked, resolved, strict=True)
        return [line for index, pair in enumerate(pairs) for line in lacking(*pair, f"{path}[{index}]")]
    return [] if asked == resolved else [f"{path}: asked {asked!r}, resolved {resolved!r}"]


def tasks(case: Case) -> Check:
    """The taskset of this checkout, asked again without a model, gives the recorded tasks in their order."""
    evaluator = load_evaluator(case.plan.evaluator)
    if not (evaluator.binaries / "python").exists():
        return Check("tasks", "UNKNOWN", (f"not set up: eval/scripts/setup {evaluator.name}",))
    faults = []
    verified: set[str] = set()
    for entry in case.plan.entries:
        try:
            for name in set(route.names(case.plan, evaluator, (entry,))) - verified:
                data.verify(name)
                verified.add(name)
            again = _describe(case, entry)
        except PrerequisiteError as error:
            return Check("tasks", "UNKNOWN", (error.what,))
        except AssayError as error:
            faults.append(f"{entry.name}: {error}")
            continue
        if case.as_recorded(again) != case.tasks[entry.name]:
            faults.append(f"provenance/tasks/{entry.name}.json is not what the taskset describes")
    return judge("tasks", faults, "keys, order, prompts and baselines follow from the taskset alone")


def _describe(case: Case, entry: EntryPlan) -> TaskPlan:
    with tempfile.TemporaryDirectory() as name:
        scratch = native.Scratch(Path(name))
        evaluator = load_evaluator(case.plan.evaluator)
        routed = route.to_data(evaluator, case.plan.taskset(entry))
        cwd = routed.directory(scratch.path / "work")
        over = merge(entry.over, routed.overrides)
        files = native.write_launch(case.plan, entry, scratch.folder("launch"), over)
        env = native.environment(case.plan, scratch, None, "audit", routed)
        return list_tasks(case.plan, entry, files, env, cwd)
