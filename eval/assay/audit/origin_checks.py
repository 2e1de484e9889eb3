"""Was what was asked the profile of that name, as this checkout has it, and is what was not told?"""

from __future__ import annotations

from assay import dialect, pinset
from assay.audit.case import Case
from assay.audit.check import Check, judge
from assay.audit.pinned_checks import leaves
from assay.paths import relative
from assay.plan import EntryPlan
from assay.planning import launch_paths, launch_texts
from assay.profile import Profile, find_profile
from assay.run.conduct import laid_over


def profile(case: Case) -> Check:
    """The launch files are this checkout's profile's; what was laid over them is what a command can lay."""
    name = case.plan.profile
    if case.plan.pins != pinset.current().name:
        said = f'the pin set "{case.plan.pins}" is not the one in force: --pins DIR'
        return Check("profile", "UNKNOWN", (said,))
    found = find_profile(name)
    faults = [
        f"{what} is {planned!r}, the profile {name} has {wanted!r}"
        for what, planned, wanted in (
            ("the description", case.plan.description, found.description),
            ("the evaluator", case.plan.evaluator, found.evaluator),
        )
        if planned != wanted
    ]
    for entry in case.plan.entries:
        faults += [*_entry(found, entry), *_over(case, entry)]
    entries = f"{len(case.plan.entries)} of {len(found.entry)} entries"
    return judge("profile", faults, f"{name} of this checkout, {entries}")


def _entry(found: Profile, entry: EntryPlan) -> list[str]:
    """What of an entry is not as the profile has it."""
    facts = next((facts for facts in found.entry if facts.name == entry.name), None)
    if facts is None:
        return [f"the profile {found.name} has no entry {entry.name}"]
    paths = launch_paths(found, facts)
    faults = [
        f"launch/{entry.name}/{name} is not {relative(paths[name])} of this checkout"
        for name, text in launch_texts(found, facts).items()
        if entry.launch[name] != text
    ]
    if (entry.tasks, entry.rollouts) != (facts.tasks, facts.rollouts) and not entry.over:
        planned = f"{entry.tasks} tasks x {entry.rollouts} rollouts"
        faults.append(f"{entry.name} is {planned}, the profile has {facts.tasks} x {facts.rollouts}")
    return faults


def _over(case: Case, entry: EntryPlan) -> list[str]:
    """What was laid over an entry's files that no option of the command can lay there."""
    speech = dialect.of(case.plan.dialect)
    first = leaves(speech.first(entry.tasks))
    sampling = {f"{table}." for table in speech.sampling({"temperature": 0.0})}
    return [
        f"{entry.name}: {name} = {value!r} was laid over its files"
        for name, value in leaves(entry.over).items()
        if first.get(name) != value and not name.startswith(tuple(sampling))
    ]


def notes(case: Case) -> Check:
    """Each note of the summary is about a part of the run, and none that the run owes is left out."""
    said = case.summary.notes
    about = {f"{name}: " for entry in case.plan.entries for name in (entry.name, *_folders(entry))}
    faults = [
        f"summary.json notes what no run notes: {note}" for note in said if not note.startswith(tuple(about))
    ]
    faults += [f"summary.json does not note: {note}" for note in laid_over(case.plan) if note not in said]
    sound = "; ".join(said) if said else "none"
    return judge("notes", faults, f"the run's own words: {sound}")


def _folders(entry: EntryPlan) -> list[str]:
    return [part.folder for part in entry.parts]
