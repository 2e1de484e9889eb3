"""What is told before anything long begins."""

from __future__ import annotations

import pytest

from assay import sandbox
from assay.errors import PrerequisiteError
from assay.run.prepare import sandbox_image


def test_a_server_that_is_not_there_is_told_before_an_image_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[str] = []
    asked: list[str] = []

    def missing(evaluator: str) -> None:
        raise PrerequisiteError("there is no image yet")

    def away() -> None:
        raise PrerequisiteError("the server is away")

    monkeypatch.setattr(sandbox, "engine", object)
    monkeypatch.setattr(sandbox, "check", missing)
    monkeypatch.setattr(sandbox, "build", lambda name: built.append(name) or image)
    image = type("Image", (), {"image_id": "sha256:made"})

    with pytest.raises(PrerequisiteError, match="the server is away"):
        sandbox_image("verifiers", away)
    assert built == []
    assert sandbox_image("verifiers", lambda: asked.append("asked")) == "sha256:made"
    assert (asked, built) == (["asked"], ["verifiers"])
