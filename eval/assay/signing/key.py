"""Ed25519 keys: made once and never overwritten, read like any other secret, named by their public half.

A private key is PKCS#8 in PEM, in a file that only its owner can read, encrypted at rest where he asked for
it (PBES2 with AES-256, which every tool reads; its rounds are few, so a passphrase must be long). The public
half lies beside it. A key's id is the SHA-256 of its SubjectPublicKeyInfo in DER, so that
anybody who holds the public key computes the same name for it, with any tool.
"""

from __future__ import annotations

import getpass
import os
import stat
import sys
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from assay.digest import sha256_bytes
from assay.errors import ConfigurationError
from assay.files import sync_directory
from assay.private import read_private, refused

KEY_VARIABLE = "ASSAY_SIGNING_KEY_FILE"
UNLOCK_VARIABLE = "ASSAY_SIGNING_PASSPHRASE_FILE"
SUFFIX, PUBLIC_SUFFIX = ".pem", ".pub.pem"
LARGEST_BYTES = 16 << 10
SHORTEST_PASSPHRASE = 12
# OpenSSL, which encrypts keys, takes no longer one.
LONGEST_PASSPHRASE = 1023
WHAT = "signing key file"
MAKE = "assay keys new"

Ask = Callable[[str], str]
"""Asks somebody at a terminal for a passphrase, under a prompt."""


@dataclass(frozen=True)
class PublicKey:
    """Whose signature is believed.

    Attributes:
        pem: SubjectPublicKeyInfo in PEM.
        key_id: SHA-256 of the same in DER, 64 hex digits.
    """

    pem: bytes
    key_id: str
    _key: Ed25519PublicKey

    @classmethod
    def of(cls, key: Ed25519PublicKey) -> PublicKey:
        """The key with its name."""
        info = serialization.PublicFormat.SubjectPublicKeyInfo
        der = key.public_bytes(serialization.Encoding.DER, info)
        return cls(key.public_bytes(serialization.Encoding.PEM, info), sha256_bytes(der), key)

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether the signature is this key's over exactly these bytes."""
        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


class SigningKey:
    """A private key that shows itself nowhere; it only signs."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey.of(key.public_key())

    def __repr__(self) -> str:
        """Its public name."""
        return f"SigningKey({self.public.key_id})"

    def sign(self, data: bytes) -> bytes:
        """The signature over the bytes, 64 bytes."""
        return self._key.sign(data)

    def pem(self, passphrase: bytes | None) -> bytes:
        """The private key in PKCS#8, encrypted with the passphrase where there is one."""
        encryption = (
            serialization.NoEncryption()
            if passphrase is None
            else serialization.BestAvailableEncryption(passphrase)
        )
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        )


def read_public_key(data: bytes, name: str = "the public key") -> PublicKey:
    """The key in a PEM text.

    Args:
        data: The text.
        name: What it is, for an error.

    Raises:
        ConfigurationError: it is no Ed25519 public key in PEM, or a private one.
    """
    if b"PRIVATE KEY" in data:
        raise ConfigurationError(
            f"{name} is a private key",
            "a signature is verified with the public one, and a private key is shown to nobody",
            f"name the file beside it that ends in {PUBLIC_SUFFIX}",
        )
    why = "it is no Ed25519 key"
    try:
        found = serialization.load_pem_public_key(data)
        if isinstance(found, Ed25519PublicKey):
            return PublicKey.of(found)
    except (ValueError, UnsupportedAlgorithm):
        why = "it is no public key in PEM"
    raise ConfigurationError(f"{name} cannot be used", why, f"the file ends in {PUBLIC_SUFFIX}; see: {MAKE}")


def load_public_key(path: Path) -> PublicKey:
    """The key in a file (see `read_public_key`); ConfigurationError when it cannot be read either."""
    try:
        # A pipe that nobody writes into would never end.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            regular = stat.S_ISREG(os.fstat(handle).st_mode)
            data = file.read(LARGEST_BYTES + 1) if regular else b""
    except OSError as error:
        raise ConfigurationError(
            f"the public key {path} cannot be read", f"{error.strerror}", MAKE
        ) from error
    if not regular:
        raise ConfigurationError(f"the public key {path} cannot be used", "it is not a regular file", MAKE)
    if len(data) > LARGEST_BYTES:
        raise ConfigurationError(f"the public key {path} cannot be used", f"over {LARGEST_BYTES} bytes", MAKE)
    return read_public_key(data, f"the public key {path}")


def take_signing_key(environ: MutableMapping[str, str], ask: Ask | None = None) -> SigningKey | None:
    """The key that the environment names, which is taken out of it: no child hears of it. None for none.

    Args:
        environ: The variables.
        ask: Asks for a passphrase; None for this process's terminal, if it has one.

    Raises:
        ConfigurationError: the file or its passphrase cannot be used.
    """
    named, passphrase = environ.pop(KEY_VARIABLE, ""), environ.pop(UNLOCK_VARIABLE, "")
    return load_signing_key(Path(named), Path(passphrase) if passphrase else None, ask) if named else None


def load_signing_key(path: Path, passphrase_file: Path | None = None, ask: Ask | None = None) -> SigningKey:
    """The private key in a file.

    Args:
        path: The file; the rules of `assay.private` hold for it.
        passphrase_file: Where its passphrase is, under the same rules.
        ask: Asks for it where no file has it; None for this process's terminal, if it has one.

    Raises:
        ConfigurationError: the file is not private, holds no Ed25519 key, or has another passphrase.
    """
    data = read_private(path, WHAT, LARGEST_BYTES, MAKE)
    encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in data
    passphrase = _passphrase(path, passphrase_file, ask) if encrypted else None
    try:
        found = serialization.load_pem_private_key(data, passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        why = "the passphrase is another one" if encrypted else "it is no private key in PEM"
        raise refused(path, WHAT, why, f"give its passphrase, or make a key: {MAKE}") from error
    if not isinstance(found, Ed25519PrivateKey):
        raise refused(path, WHAT, "it is no Ed25519 key", MAKE)
    return SigningKey(found)


def _passphrase(path: Path, file: Path | None, ask: Ask | None) -> bytes:
    if file is not None:
        return read_passphrase(file)
    if ask is None and not sys.stdin.isatty():
        raise refused(
            path,
            WHAT,
            "it is encrypted, and nobody is at a terminal to be asked for its passphrase",
            f"name a private file that holds it: {UNLOCK_VARIABLE}",
        )
    return (ask or getpass.getpass)(f"passphrase of {path}: ").encode("utf-8")


def read_passphrase(path: Path) -> bytes:
    """The passphrase in a private file, without the line end that an editor leaves."""
    put = f"(umask 077; printf %s PASSPHRASE > {path})"
    return read_private(path, "passphrase file", LARGEST_BYTES, put).rstrip(b"\r\n")


def make_key(folder: Path, name: str, passphrase: bytes | None) -> tuple[Path, Path, PublicKey]:
    """Make a key and write its two halves; nothing that is there is ever replaced.

    Args:
        folder: Where to; it is there.
        name: Of the files, without their endings.
        passphrase: What the private half is encrypted with; None for not at all.

    Returns:
        Where the private and the public half are, and the public one.

    Raises:
        ConfigurationError: one of the files is there already, or the passphrase is too short or too long.
    """
    if passphrase is not None and len(passphrase) < SHORTEST_PASSPHRASE:
        raise ConfigurationError(
            "the passphrase is too short", f"it has fewer than {SHORTEST_PASSPHRASE} bytes", "choose a longer"
        )
    if passphrase is not None and len(passphrase) > LONGEST_PASSPHRASE:
        raise ConfigurationError(
            "the passphrase is too long", f"it has more than {LONGEST_PASSPHRASE} bytes", "choose a shorter"
        )
    key = SigningKey(Ed25519PrivateKey.generate())
    private, public = folder / f"{name}{SUFFIX}", folder / f"{name}{PUBLIC_SUFFIX}"
    if os.path.lexists(public):
        raise _taken(public)
    _write_new(private, key.pem(passphrase), 0o600)
    try:
        _write_new(public, key.public.pem, 0o644)
    except BaseException:
        private.unlink()
        raise
    sync_directory(folder)
    return private, public, key.public


def _write_new(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except FileExistsError:
        raise _taken(path) from None
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)
        file.write(data)
        file.flush()
        os.fsync(handle)


def _taken(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is there already", "a key is never overwritten", f"choose another name: {MAKE} --name NAME"
    )
