"""The node's key: generated once, private, with one spelling of its identity."""

from __future__ import annotations

import os
import stat
import string
import threading
from itertools import count
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from node.model.errors import HostError
from node.trust.identities import fingerprint, identity_of, public_of, verify
from node.trust.keys import NodeKey
from node.trust.private_files import create_private, read_private, replace_private

patient = settings(deadline=None)

KEY = NodeKey.generate()


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, including hidden files."""
    return [path.name for path in folder.iterdir()]


def test_key_is_made_once(tmp_path: Path) -> None:
    """The first start generates the key, and later starts load it."""
    path = tmp_path / "node.key"
    made = NodeKey.load_or_create(path)
    assert NodeKey.load_or_create(path).identity == made.identity
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert names_in(tmp_path) == ["node.key"]


def test_services_starting_together_share_the_key(tmp_path: Path) -> None:
    """Services that generate the key concurrently all get the same one."""
    gate = threading.Barrier(8)
    identities: list[str] = []

    def start() -> None:
        gate.wait()
        identities.append(NodeKey.load_or_create(tmp_path / "node.key").identity)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(identities) == 8
    assert len(set(identities)) == 1
    assert names_in(tmp_path) == ["node.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o666, 0o610])
def test_key_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    """A key that others may read is refused with the command that corrects it."""
    path = tmp_path / "node's key"
    NodeKey.load_or_create(path)
    path.chmod(mode)
    with pytest.raises(HostError) as refusal:
        NodeKey.load_or_create(path)
    assert f"mode {mode:04o}" in refusal.value.detail
    assert refusal.value.detail.endswith("chmod 600 '" + str(path).replace("'", "'\"'\"'") + "'")


def _pem(private: Ed25519PrivateKey | Ed448PrivateKey, password: bytes | None = None) -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 100,
        b"not a key",
        _pem(Ed25519PrivateKey.generate())[:60],
        _pem(Ed25519PrivateKey.generate()).replace(b"M", b"N"),
        _pem(Ed25519PrivateKey.generate(), b"password"),
        _pem(Ed448PrivateKey.generate()),
        b"x" * 100_000,
    ],
    ids=count(),
)
def test_damaged_key_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    """A file without an unencrypted Ed25519 key is refused with the remedy, and not overwritten."""
    path = tmp_path / "node.key"
    create_private(path, content)
    with pytest.raises(HostError, match=r"not contain an Ed25519 key.*Restore it from a backup"):
        NodeKey.load_or_create(path)
    assert path.read_bytes() == content


def test_key_in_a_strange_place_is_a_host_error(tmp_path: Path) -> None:
    """A folder, a pipe, a blocking file, or a missing folder is an error with an explanation."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "file").touch(0o600)
    cases = {
        tmp_path: "cannot be read: Is a directory",
        tmp_path / "pipe": "is not a file",
        tmp_path / "file" / "node.key": "cannot be read: Not a directory",
        tmp_path / "missing" / "node.key": "cannot be written: No such file or directory",
    }
    for path, words in cases.items():
        with pytest.raises(HostError, match=words):
            NodeKey.load_or_create(path)


@pytest.mark.needs("root")
def test_a_link_of_another_account_is_not_followed(tmp_path: Path) -> None:
    """A private file is not read by a link that somebody else has put there, but by one's own."""
    secret, link = tmp_path / "secret", tmp_path / "node.key"
    create_private(secret, b"of root")
    link.symlink_to(secret)
    assert read_private(link) == b"of root"
    os.chown(link, 1, 1, follow_symlinks=False)
    with pytest.raises(HostError, match="is a link of another account; remove it"):
        read_private(link)


def test_key_shows_nothing_secret() -> None:
    """A key in a log shows only its identity."""
    assert repr(KEY) == f"NodeKey({KEY.identity})"
    assert str(KEY) == repr(KEY)


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """Neither a loose nor a strict umask changes the mode of a private file."""
    before = os.umask(0)
    try:
        create_private(tmp_path / "loose", b"1")
        os.umask(0o777)
        replace_private(tmp_path / "strict", b"2")
    finally:
        os.umask(before)
    assert read_private(tmp_path / "loose") == b"1"
    assert read_private(tmp_path / "strict") == b"2"


def test_create_never_overwrites_and_replace_does(tmp_path: Path) -> None:
    """Creating keeps an older file, and replacing overwrites it."""
    path = tmp_path / "file"
    assert create_private(path, b"first")
    assert not create_private(path, b"second")
    assert read_private(path) == b"first"
    replace_private(path, b"third")
    assert read_private(path) == b"third"
    assert names_in(tmp_path) == ["file"]


@patient
@given(st.binary(min_size=32, max_size=32))
def test_identity_round_trip(public: bytes) -> None:
    """An identity has 51 characters and can be decoded into the key."""
    identity = identity_of(public)
    assert len(identity) == 51
    assert public_of(identity) == public


def test_a_key_has_one_spelling() -> None:
    """Only one of the spellings that decode to a key is an identity."""
    alphabet = string.ascii_letters + string.digits + "-_"
    accepted = []
    for last in alphabet:
        spelt = KEY.identity[:-1] + last
        try:
            public_of(spelt)
        except ValueError:
            continue
        accepted.append(spelt)
    assert KEY.identity in accepted
    assert len(accepted) == 16
    assert len({public_of(spelt) for spelt in accepted}) == 16


@pytest.mark.parametrize(
    "identity",
    [
        "",
        "ed25519:",
        KEY.identity[8:],
        KEY.identity + "=",
        KEY.identity + "\n",
        KEY.identity.upper(),
        KEY.identity[:-1],
        "rsa:" + KEY.identity[8:],
        "ed25519:" + "\u00e9" * 43,
        "ed25519:" + "+" * 43,
    ],
    ids=count(),
)
def test_other_texts_are_no_identities(identity: str) -> None:
    """A text that is not exactly an identity is refused, and verifies nothing."""
    with pytest.raises(ValueError, match="not a node's identity"):
        public_of(identity)
    assert not verify(identity, KEY.sign(b"data"), b"data")


@patient
@given(st.binary(max_size=100), st.binary(max_size=100))
def test_only_the_signed_bytes_verify(data: bytes, other: bytes) -> None:
    """A signature holds for the key and the bytes it was made for, and for no others."""
    signature = KEY.sign(data)
    assert verify(KEY.identity, signature, data)
    assert verify(KEY.identity, signature, other) == (data == other)
    assert not verify(NodeKey.generate().identity, signature, data)


@patient
@given(st.binary(max_size=100))
def test_no_bytes_are_a_signature_by_chance(signature: bytes) -> None:
    """Bytes of any length in place of a signature verify nothing and raise nothing."""
    assert not verify(KEY.identity, signature, b"data")


def test_fingerprint_is_short_and_stable() -> None:
    """A fingerprint is five groups of four hex digits and depends on the key alone."""
    assert fingerprint(identity_of(bytes(32))) == "6668-7aad-f862-bd77-6c8f"
    assert fingerprint(KEY.identity) != fingerprint(NodeKey.generate().identity)
