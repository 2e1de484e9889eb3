"""`ro-crate-metadata.json`: an export as an RO-Crate 1.1, for those who collect and cite research objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from assay.export.contents import CRATE, Contents
from assay.record.results import SAMPLES, SUMMARY
from assay.view.view import Benchmark, View

CONTEXT = "https://w3id.org/ro/crate/1.1/context"
CONFORMS = "https://w3id.org/ro/crate/1.1"
FORMATS: Mapping[str, str] = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".toml": "application/toml",
}
STATUS: Mapping[str, str] = {
    "done": "http://schema.org/CompletedActionStatus",
    "partial": "http://schema.org/CompletedActionStatus",
}
FAILED = "http://schema.org/FailedActionStatus"
RUN, PROGRAM = "#run", "#assay"


def metadata(folder: Path, view: View, contents: Contents, digests: Mapping[str, str]) -> dict[str, Any]:
    """The metadata document.

    Args:
        folder: Where the export's files are.
        view: The run.
        contents: What is published.
        digests: SHA-256 of every file of the export but this one, by path.
    """
    scores = [_score(number, each) for number, each in enumerate(view.benchmarks(), start=1)]
    files = [_file(folder, path, digests[path]) for path in sorted(digests)]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": contents.run,
        "description": f"{view.description} (evaluation run of {view.name}: provenance and figures, "
        "without the text of tasks and answers)",
        "datePublished": view.ended or view.started,
        "hasPart": _refer(files),
        "mentions": {"@id": RUN},
        "variableMeasured": _refer(scores),
    }
    described = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": CONFORMS},
    }
    return {
        "@context": [CONTEXT, {"sha256": "https://schema.org/sha256"}],
        "@graph": [described, root, *files, *scores, _run(view), _program(contents.assay)],
    }


def _run(view: View) -> dict[str, Any]:
    return {
        "@id": RUN,
        "@type": "CreateAction",
        "name": f"{view.name}, asked of {view.model or 'nobody'}",
        "startTime": view.started,
        "endTime": view.ended,
        "actionStatus": STATUS.get(view.status, FAILED),
        "instrument": {"@id": PROGRAM},
        "result": [{"@id": SUMMARY}, {"@id": SAMPLES}],
    }


def _program(version: str) -> dict[str, Any]:
    return {"@id": PROGRAM, "@type": "SoftwareApplication", "name": "Assay", "softwareVersion": version}


def _score(number: int, benchmark: Benchmark) -> dict[str, Any]:
    found = {
        "@id": f"#score-{number}",
        "@type": "PropertyValue",
        "name": benchmark.name,
        "measurementTechnique": benchmark.metric or "reward",
        "value": benchmark.score,
    }
    if benchmark.bounds is not None:
        found |= {"minValue": benchmark.bounds.low, "maxValue": benchmark.bounds.high}
    return found


def _file(folder: Path, path: str, digest: str) -> dict[str, Any]:
    return {
        "@id": quote(path),
        "@type": "File",
        "name": path,
        "encodingFormat": FORMATS.get(Path(path).suffix, "text/plain"),
        "contentSize": str((folder / path).stat().st_size),
        "sha256": digest,
    }


def _refer(entities: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"@id": entity["@id"]} for entity in entities]
