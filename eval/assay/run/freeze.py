"""Frozen inputs: everything that decides a result, by digest, before and after each entry.

A run is a value: if one of these changes while it runs, nobody can say what it measured, and it fails. Task
data can be gigabytes: all are hashed before the first request, and each entry's own again after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assay import data, models, pinset, sandbox, setup, sources
from assay.digest import combined_digest, sha256_bytes, sha256_files, tree_digests
from assay.errors import VerificationError
from assay.evaluator import Evaluator, load_evaluator
from assay.paths import EVAL, EVALUATORS, ROOT, RUNTIME, TASKSETS, relative
from assay.plan import EntryPlan, OwnServer, Plan
from assay.run import route

LOCKS = ("build.lock", "requirements.lock", "models.lock", "flake.lock")
EVALUATOR_FILES = ("evaluator.toml", "build.lock", "requirements.lock")


def lock_files(evaluator: str) -> list[Path]:
    """The files that pin what runs: locks, the evaluator's description, the sandbox's recipe; sorted."""
    pins = pinset.current()
    described = load_evaluator(evaluator)
    locks = [*LOCKS, *(["prime-envs.lock"] if described.sources else [])]
    locks += ["datasets.lock"] if described.route else []
    named = [pins.file(name) for name in locks]
    # The programs that list upstream's tasks in their evaluators' environments.
    named += EVALUATORS.glob("*.py")
    named += [pins.evaluator(evaluator) / name for name in EVALUATOR_FILES]
    folders = [RUNTIME, *([pins.directory] if pins.directory else [])]
    recipe = {path.name for folder in folders for path in folder.iterdir() if is_recipe(folder, path)}
    chosen = [pins.directory / "pins.toml"] if pins.directory else []
    return sorted([*named, *chosen, *(pins.runtime_file(name) for name in recipe)])


def is_recipe(folder: Path, path: Path) -> bool:
    """Whether a file of `runtime/`, or of a pin set that replaces some of them, decides the sandbox."""
    if folder == RUNTIME:
        return path.is_file() and not path.name.startswith(".")
    return path.is_file() and (path.name == "images.lock" or path.suffix == ".pins")


def freeze(plan: Plan, evaluator: Evaluator, data_of: Sequence[EntryPlan] | None = None) -> dict[str, str]:
    """Hash every input of the plan.

    Args:
        plan: What runs.
        evaluator: The evaluator it names.
        data_of: Of task data, hash only what these entries read; None for all entries.

    Returns:
        SHA-256 by name: `file:<path>`, `tree:<path>`, `source:<name>`, `environment:<name>`, `model:<name>`,
        `sandbox:image`, `launch:<entry>/<file>`, `data:<name>/<path>`.

    Raises:
        PrerequisiteError: an environment, the model, the image or task data are missing.
        VerificationError: one of them is not what its lock says.
    """
    inputs: dict[str, str] = {}
    with ThreadPoolExecutor(2) as pool:
        # Two at a time: one waits for the disk while the other computes.
        environments = pool.map(_environment, ("assay", plan.evaluator))
        for path, digest in sha256_files(lock_files(plan.evaluator)).items():
            inputs[f"file:{relative(path)}"] = digest
        for name in evaluator.sources:
            inputs[f"source:{name}"] = sources.verify(name).digest
        for tree in trees(plan, evaluator):
            inputs[f"tree:{relative(tree)}"] = combined_digest(tree_digests(tree))
        for entry in plan.entries:
            for name, text in entry.launch.items():
                inputs[f"launch:{entry.name}/{name}"] = sha256_bytes(text.encode("utf-8"))
        if isinstance(plan.server, OwnServer):
            models.verify(plan.server.model)
            inputs[f"model:{plan.server.model}"] = models.entry(plan.server.model).sha256
        if plan.runtime == "docker":
            inputs["sandbox:image"] = sandbox.check(plan.evaluator).image_id
        for name in route.names(plan, evaluator, data_of):
            inputs |= data.frozen(name)
        inputs.update(environments)
    return dict(sorted(inputs.items()))


def trees(plan: Plan, evaluator: Evaluator) -> list[Path]:
    """The folders of this checkout whose files run: the core, the tasksets, and our server if it answers."""
    folders = [EVAL / "assay", EVAL / "scripts", *(TASKSETS / name for name in evaluator.tasksets)]
    return [*folders, ROOT / "server"] if isinstance(plan.server, OwnServer) else folders


def expected(plan: Plan, evaluator: Evaluator) -> set[str]:
    """The names of all inputs that a run of the plan freezes, without hashing anything."""
    found = {f"file:{relative(path)}" for path in lock_files(plan.evaluator)}
    found |= {f"tree:{relative(path)}" for path in trees(plan, evaluator)}
    found |= {f"source:{name}" for name in evaluator.sources}
    found |= {f"launch:{entry.name}/{name}" for entry in plan.entries for name in entry.launch}
    found |= {"environment:assay", f"environment:{plan.evaluator}"}
    if isinstance(plan.server, OwnServer):
        found.add(f"model:{plan.server.model}")
    if plan.runtime == "docker":
        found.add("sandbox:image")
    for name in route.names(plan, evaluator):
        found |= set(data.frozen_names(name))
    return found


def _environment(name: str) -> tuple[str, str]:
    return f"environment:{name}", setup.check(setup.ENVIRONMENTS[name]).digest


def during(before: Mapping[str, str], plan: Plan, evaluator: Evaluator, entry: EntryPlan) -> dict[str, str]:
    """Of the inputs that were frozen before the run, those that are hashed again after an entry."""
    read = {f"data:{name}/" for name in route.names(plan, evaluator, (entry,))}
    return {
        name: digest
        for name, digest in before.items()
        if not name.startswith("data:") or any(name.startswith(prefix) for prefix in read)
    }


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The names of inputs that differ, sorted."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def require_unchanged(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise VerificationError, naming each input, when one changed."""
    changed = changes(before, after)
    if changed:
        raise VerificationError(
            f"{len(changed)} frozen input(s) changed during the run: {', '.join(changed)}",
            "nobody can say what such a run measured",
            "leave the checkout alone while a run is live, then run again",
        )


def names(inputs: Iterable[str], kind: str) -> list[str]:
    """The inputs of one kind, e.g. "file", without the prefix."""
    prefix = f"{kind}:"
    return [name.removeprefix(prefix) for name in inputs if name.startswith(prefix)]
