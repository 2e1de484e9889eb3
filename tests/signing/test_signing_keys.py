"""Keys: made once, private, never overwritten, named by their public half, refused for what they are not."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import pty
import stat
import subprocess
import termios
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay.errors import ConfigurationError
from assay.signing.key import load_public_key, load_signing_key, make_key, take_signing_key
from signed import key_in
from toy_checkout import Toy

PASSPHRASE = "correct horse battery"


def private_file(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_key_s_halves_are_files_of_their_own_and_its_id_is_what_any_tool_computes(
    toy: Toy, tmp_path: Path
) -> None:
    done = toy.run("keys", "new", "--name", "team", "--folder", tmp_path, "--json")
    assert done.code == 0, done.err
    private, public = tmp_path / "team.pem", tmp_path / "team.pub.pem"
    assert (done.json["private"], done.json["public"]) == (str(private), str(public))
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert b"-----BEGIN PRIVATE KEY-----" in private.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["team.pem", "team.pub.pem"]
    der = base64.b64decode("".join(public.read_text("ascii").splitlines()[1:-1]))
    assert der.startswith(bytes.fromhex("302a300506032b6570032100")), "RFC 8410's form of an Ed25519 key"
    digest = hashlib.sha256(der).hexdigest()
    assert done.json["key_id"] == digest == load_signing_key(private).public.key_id
    shown = toy.run("keys", "show", public, "--json")
    assert (shown.code, shown.json["key_id"]) == (0, done.json["key_id"])
    assert PASSPHRASE not in done.out + done.err
    secret = private.read_text("ascii").splitlines()[1]
    assert secret not in done.out + done.err


def test_without_a_folder_a_key_lies_in_the_checkout_s_own_private_one(toy: Toy) -> None:
    done = toy.run("keys", "new", "--name", "own", "--json")
    assert done.code == 0, done.err
    folder = toy.root / ".assay/keys"
    assert done.json["private"] == str(folder / "own.pem")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("there", ["team.pem", "team.pub.pem"])
def test_a_key_is_never_overwritten_nor_written_through_a_link(toy: Toy, tmp_path: Path, there: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    for make in (lambda path: path.write_text("kept"), lambda path: path.symlink_to(elsewhere)):
        folder = tmp_path / f"folder-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        make(folder / there)
        done = toy.run("keys", "new", "--name", "team", "--folder", folder)
        assert done.code == 2
        assert f"{folder / there} is there already" in done.err
        assert [path.name for path in folder.iterdir()] == [there], "no half of another key is left"
        assert (folder / there).read_text() == "kept"
    assert elsewhere.read_text() == "kept"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--name", "../outside"), "is no name of a key"),
        (("--folder", "/nonexistent/folder"), "is not a directory"),
        (("--encrypt",), "nobody is at a terminal"),
    ],
)
def test_a_key_that_cannot_be_made_is_refused_before_anything_is_written(
    toy: Toy, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = toy.run("keys", "new", *([] if "--folder" in words else ["--folder", tmp_path]), *words)
    assert done.code == 2
    assert said in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_passphrase_that_no_tool_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="too long"):
        make_key(tmp_path, "long", b"x" * 1024)
    assert list(tmp_path.iterdir()) == []
    make_key(tmp_path, "long", b"x" * 1023)
    assert load_signing_key(tmp_path / "long.pem", ask=lambda _: "x" * 1023)


def test_a_pipe_is_no_public_key_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key.pub.pem")
    with pytest.raises(ConfigurationError, match="not a regular file"):
        load_public_key(tmp_path / "key.pub.pem")


def test_an_encrypted_key_opens_with_its_passphrase_and_with_no_other(toy: Toy, tmp_path: Path) -> None:
    unlock = private_file(tmp_path / "unlock", PASSPHRASE.encode() + b"\n")
    done = toy.run(
        "keys", "new", "--encrypt", "--folder", tmp_path, "--json", ASSAY_SIGNING_PASSPHRASE_FILE=str(unlock)
    )
    assert (done.code, done.json["encrypted"]) == (0, True), done.err
    private = tmp_path / "assay.pem"
    assert b"ENCRYPTED PRIVATE KEY" in private.read_bytes()
    assert load_signing_key(private, unlock).public.key_id == done.json["key_id"]
    assert load_signing_key(private, ask=lambda prompt: PASSPHRASE).public.key_id == done.json["key_id"]
    with pytest.raises(ConfigurationError, match="passphrase is another one"):
        load_signing_key(private, ask=lambda prompt: "correct horse batterz")
    unlock.chmod(0o644)
    with pytest.raises(ConfigurationError, match="others could read"):
        load_signing_key(private, unlock)


def test_a_passphrase_is_asked_for_at_the_terminal_twice_and_shown_nowhere(toy: Toy, tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    command = subprocess.Popen(
        toy.words("keys", "new", "--encrypt", "--folder", tmp_path),
        cwd=toy.root,
        env=toy.environment(),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(terminal)
    shown = b""
    for asked in (b"passphrase of the new key: ", b"the same again: "):
        while asked not in shown:
            shown += os.read(master, 4096)
        os.write(master, PASSPHRASE.encode() + b"\n")
    while True:
        try:
            more = os.read(master, 4096)
        except OSError:  # The terminal's other end is closed.
            break
        if not more:
            break
        shown += more
    assert command.wait(60) == 0, shown
    os.close(master)
    assert PASSPHRASE.encode() not in shown
    assert load_signing_key(tmp_path / "assay.pem", ask=lambda prompt: PASSPHRASE)


def test_a_short_passphrase_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="too short"):
        make_key(tmp_path, "short", b"elevenbytes")
    assert list(tmp_path.iterdir()) == []


def test_the_environment_hands_its_key_over_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    private, _ = key_in(tmp_path)
    environ = {
        "ASSAY_SIGNING_KEY_FILE": str(private),
        "ASSAY_SIGNING_PASSPHRASE_FILE": "/nonexistent",
        "PATH": "/bin",
    }
    key = take_signing_key(environ)
    assert key is not None
    assert environ == {"PATH": "/bin"}
    assert take_signing_key(environ) is None
    secret = private.read_text("ascii").splitlines()[1]
    assert secret not in f"{key!r} {key} {vars(type(key))}"


def pem(key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_a_run_with_an_unfit_signing_key_asks_nothing_and_makes_no_directory(
    toy: Toy, tmp_path: Path, runs: Path
) -> None:
    good, public = key_in(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(good)
    of_nist = pem(ec.generate_private_key(ec.SECP256R1()))
    cases = [
        (tmp_path / "absent", "No such file"),
        (Path("relative.pem"), "not absolute"),
        (link, "symbolic link"),
        (tmp_path, "not a regular file"),
        (private_file(tmp_path / "open", good.read_bytes(), 0o644), "others could read"),
        (private_file(tmp_path / "empty", b""), "it is empty"),
        (private_file(tmp_path / "large", b"x" * 20_000), "longer than"),
        (private_file(tmp_path / "words", b"a key"), "no private key in PEM"),
        (private_file(tmp_path / "public", public.read_bytes()), "no private key in PEM"),
        (private_file(tmp_path / "nist", of_nist), "no Ed25519 key"),
    ]
    for path, said in cases:
        done = toy.run("run", "toy", "--runs", runs, ASSAY_SIGNING_KEY_FILE=str(path))
        assert done.code == 2, path
        assert "the signing key file" in done.err
        assert said in done.err
        assert list(runs.iterdir()) == [], path


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pem(Ed25519PrivateKey.generate()), "is a private key"),
        (b"words", "no public key in PEM"),
        (b"x" * 20_000, "over 16384 bytes"),
        (
            ec.generate_private_key(ec.SECP256R1())
            .public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
            "no Ed25519 key",
        ),
    ],
    ids=["private", "words", "large", "nist"],
)
def test_what_is_no_public_key_is_refused_as_one(toy: Toy, tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "key.pub.pem"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=said):
        load_public_key(path)
    assert toy.run("keys", "show", path).code == 2
