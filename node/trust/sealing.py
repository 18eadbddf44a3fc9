"""Texts sealed by a key of this host, so that neither its database nor a copy of it tells them.

Secrets of archives, webhooks, and tests stand sealed in the database, and the key in a file of the
state directory, ``secrets.key``: each alone tells nothing. AES-SIV (RFC 5297) seals: the same text
for the same purpose becomes the same sealed text, so that specs can still be compared, and an edit
that changes nothing is seen to change nothing. What was sealed for one purpose is not opened for
another one: a sealed text that is put into another place is of no use there.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from node.model.errors import HostError
from node.model.secrets import SEAL_PREFIX
from node.trust.private_files import create_private, read_private

FILE = "secrets.key"
"""The file of the key in the state directory."""

ARCHIVE, MEMBERSHIP, POSTED, SPEC, WEBHOOK = (
    "archive",
    "membership",
    "posted",
    "spec",
    "webhook",
)
"""The purposes of secrets of archives, of keys of tasks at hosts that run pScheduler, of documents
that clients of pScheduler posted, of specs of tasks that this host leads, and of webhooks."""

_KEY_BITS = 512
_NAME_LENGTH = 8
_MARK = b"\0"
"""Put before each text, since an empty one would be sealed without a check of its key."""


class SealingKey:
    """The key by which this host seals texts; its ``repr`` shows only its name."""

    __slots__ = ("_cipher", "name")

    def __init__(self, key: bytes) -> None:
        self._cipher = AESSIV(key)
        self.name = hashlib.sha256(b"parley sealing key" + key).hexdigest()[:_NAME_LENGTH]

    def __repr__(self) -> str:
        """Return the name, never the key."""
        return f"SealingKey({self.name})"

    @classmethod
    def generate(cls) -> SealingKey:
        """Return a new key, without storing it."""
        return cls(AESSIV.generate_key(_KEY_BITS))

    @classmethod
    def load(cls, state_dir: Path) -> SealingKey | None:
        """Return the key of this state directory; None if it has none.

        :raises HostError: the file is damaged, open to others, or cannot be read.
        """
        written = read_private(state_dir / FILE)
        return None if written is None else cls._read(written, state_dir / FILE)

    @classmethod
    def load_or_create(cls, state_dir: Path) -> SealingKey:
        """Return the key of this state directory; generate and store one if there is none.

        Two services that start at the same time get the same key.

        :raises HostError: the file is damaged, open to others, or cannot be read or written.
        """
        path = state_dir / FILE
        written = read_private(path)
        if written is None:
            create_private(path, base64.b64encode(AESSIV.generate_key(_KEY_BITS)) + b"\n")
            written = read_private(path)
        return cls._read(written or b"", path)

    @classmethod
    def _read(cls, written: bytes, path: Path) -> SealingKey:
        try:
            return cls(base64.b64decode(written.strip(), validate=True))
        except ValueError as error:
            msg = (
                f"{path} is not a key of this program; put it back from a backup, or remove it: "
                "then a new one is made, and secrets have to be added again"
            )
            raise HostError(msg) from error

    def seal(self, text: str, purpose: str) -> str:
        """Return the text sealed for a purpose, such as ``archive``."""
        sealed = self._cipher.encrypt(_MARK + text.encode(), [purpose.encode()])
        return f"{SEAL_PREFIX}{self.name}:{base64.urlsafe_b64encode(sealed).decode()}"

    def read(self, stored: str, purpose: str) -> str | None:
        """Return a stored text, also one in clear by a program before schema version 8.

        None if it cannot be opened.
        """
        if not stored.startswith(SEAL_PREFIX):
            return stored
        try:
            return self.open(stored, purpose)
        except HostError:
            return None

    def open(self, sealed: str, purpose: str) -> str:
        """Return the text that was sealed for this purpose.

        :raises HostError: it was sealed by another key, or for another purpose, or changed since.
        """
        name, _, written = sealed.removeprefix(SEAL_PREFIX).partition(":")
        if name != self.name:
            msg = (
                f"it was sealed by the key {name}, and the file {FILE} in the state directory of "
                f"this host has the key {self.name}: put that file back from a backup, or set the "
                "secret again"
            )
            raise HostError(msg)
        try:
            opened = self._cipher.decrypt(base64.urlsafe_b64decode(written), [purpose.encode()])
        except (InvalidTag, ValueError) as error:
            msg = "it is not what was sealed here; set the secret again"
            raise HostError(msg) from error
        return opened.removeprefix(_MARK).decode()
