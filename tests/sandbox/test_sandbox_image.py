"""The real image in a real engine: what it holds, what its record is worth, and that its egress is cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient

from assay import sandbox
from assay.errors import PrerequisiteError, VerificationError
from assay.paths import EVALUATORS, ROOT
from assay.sandbox.check import check
from assay.sandbox.engine import connect
from assay.sandbox.record import SANDBOX, own_digest

pytestmark = [pytest.mark.docker, pytest.mark.slow]
CUT_CONTAINER = Path(__file__).with_name("cut_container.py")
TAG = "localhost/verifiers-network:1"
SPARE = "localhost/assay-test:spoiled"


@pytest.fixture
def client() -> Iterator[DockerClient]:
    with connect(120) as client:
        yield client


@pytest.fixture
def answering() -> Iterator[int]:
    """The port of something that answers HTTP on every address of this host."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("0.0.0.0", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def edit(record: Path, change: dict[str, Any], seal: bool = True) -> None:
    """Change values of the record's image; with `seal` the record's own digest fits again."""
    value = json.loads(record.read_bytes())
    value.pop("digest")
    before = own_digest(value)
    value["image"] |= change
    value["digest"] = own_digest(value) if seal else before
    record.write_text(json.dumps(value))


def test_checking_finds_the_image_as_recorded_and_changes_nothing(
    image: sandbox.SandboxImage, client: DockerClient
) -> None:
    def state() -> object:
        files = {path.name: path.read_bytes() for path in SANDBOX.iterdir() if path.is_file()}
        return files, sorted(str(found.id) + str(found.tags) for found in client.images.list())

    before = state()
    done = subprocess.run(
        [sys.executable, "-m", "assay.cli", "sandbox", "verifiers", "--check", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["images"]["verifiers"]["image_id"] == image.image_id
    assert state() == before


def test_the_record_names_engine_client_packages_and_layers(
    image: sandbox.SandboxImage, client: DockerClient
) -> None:
    described = image.describe()
    engine = sandbox.engine()

    assert engine is not None
    assert Path(engine.client_path).is_file()
    assert described["engine"].keys() == engine.describe().keys()
    assert list(image.diff_ids) == client.images.get(image.image_id).attrs["RootFS"]["Layers"]
    assert {"python3-minimal", "iptables"} <= described["packages"].keys() or image.base == "registry"
    if image.base == "debian":
        assert any(name.startswith("python3") for name in described["base_packages"])
        assert all(len(digest) == 64 for digest in described["base_packages"].values())


def test_a_byte_changed_in_the_record_is_found(copied: Path) -> None:
    edit(copied, {"config_digest": f"sha256:{'0' * 64}"}, seal=False)

    with pytest.raises(VerificationError, match="was changed since the build"):
        check("verifiers")


def test_a_record_of_an_image_that_is_gone_is_missing(copied: Path) -> None:
    edit(copied, {"image_id": f"sha256:{'1' * 64}"})

    with pytest.raises(PrerequisiteError, match="is gone"):
        check("verifiers")


def test_an_image_with_other_layers_is_found(copied: Path) -> None:
    edit(copied, {"diff_ids": [f"sha256:{'2' * 64}"]})

    with pytest.raises(VerificationError, match="recorded layers"):
        check("verifiers")


def test_another_image_under_the_recorded_id_is_found(copied: Path, image: sandbox.SandboxImage) -> None:
    edit(copied, {"image_id": image.helpers[TAG]})

    with pytest.raises(VerificationError):
        check("verifiers")


def test_a_tag_that_was_moved_to_another_image_is_found(
    copied: Path, image: sandbox.SandboxImage, client: DockerClient
) -> None:
    client.images.get(image.helpers[TAG]).tag(*SPARE.rsplit(":", 1))
    edit(copied, {"reference": SPARE})
    try:
        with pytest.raises(VerificationError, match="is not the recorded image"):
            check("verifiers")
    finally:
        client.images.remove(SPARE)


def test_another_helper_image_than_the_recorded_one_is_found(
    copied: Path, image: sandbox.SandboxImage
) -> None:
    value = json.loads(copied.read_bytes())
    value.pop("digest")
    value["helpers"][0]["image_id"] = image.image_id
    value["digest"] = own_digest(value)
    copied.write_text(json.dumps(value))

    with pytest.raises(VerificationError, match=TAG):
        check("verifiers")


def test_an_image_of_an_older_recipe_is_missing_and_the_changed_part_is_named(
    image: sandbox.SandboxImage, runtime: Path
) -> None:
    dockerfile = runtime / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text("utf-8") + "# another\n", "utf-8")

    with pytest.raises(PrerequisiteError) as caught:
        check("verifiers", runtime)

    assert caught.value.why == "changed since: Dockerfile"


def test_changed_pins_fail_the_build_and_leave_image_and_record(
    image: sandbox.SandboxImage, runtime: Path
) -> None:
    pins = runtime / "chat.pins"
    pins.write_text(pins.read_text("utf-8").replace("--hash=sha256:0", "--hash=sha256:f", 1), "utf-8")
    before = (SANDBOX / "verifiers.json").read_bytes()

    with pytest.raises(VerificationError, match=r"not what .*chat\.pins pins"):
        sandbox.build("verifiers", image.base, runtime=runtime)

    assert (SANDBOX / "verifiers.json").read_bytes() == before
    assert check("verifiers").image_id == image.image_id
    assert not (SANDBOX / "work").exists()


def test_an_image_that_is_there_is_not_built_again(image: sandbox.SandboxImage) -> None:
    before = (SANDBOX / "verifiers.json").stat()

    assert sandbox.build("verifiers") == image
    assert (SANDBOX / "verifiers.json").stat().st_mtime_ns == before.st_mtime_ns


def test_its_programs_start_without_any_network_as_an_unprivileged_user(
    image: sandbox.SandboxImage, client: DockerClient
) -> None:
    script = (
        "set -e; id -un; for p in /tmp/vf-scripts/*.py; do uv sync --script $p --no-config -q; "
        "$(uv python find --script $p --no-config) $p --help > /dev/null; sha256sum $p; done; "
        "! touch /usr/bin/mine 2>/dev/null"
    )

    said = client.containers.run(
        image.image_id,
        ["sh", "-c", script],
        network_mode="none",
        remove=True,
        environment={"UV_OFFLINE": "false"},
    )

    words = said.decode().split()
    assert words[0] == "sandbox"
    assert words[1] == image.programs["chat"]


def test_verifiers_cuts_a_containers_egress_with_our_network_image(
    image: sandbox.SandboxImage, answering: int
) -> None:
    done = subprocess.run(
        [
            EVALUATORS / "verifiers" / ".venv" / "bin" / "python",
            CUT_CONTAINER,
            image.image_id,
            str(answering),
        ],
        env={"PATH": os.environ["PATH"], "HOME": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    assert found["who"] == ["sandbox", "writable"]
    assert found["before"]["direct"], "nothing was reachable before the cut either: the test proves nothing"
    assert found["after"] == dict.fromkeys(found["after"], False)
