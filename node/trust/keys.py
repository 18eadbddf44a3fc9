"""The node's Ed25519 key, with the lineage that leads to it (:mod:`node.trust.lineage`).

The file ``node.pem`` has the private key. Once it was replaced, the lineage stands before it, and
behind it the certificates by which former keys vouch for later ones
(:func:`node.trust.certificates.bridge`). One rename writes all of it: a key is either replaced,
with all that makes others follow, or it is not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from node.model.errors import HostError
from node.trust.identities import identity_of
from node.trust.lineage import (
    InvalidLineageError,
    Lineage,
    Succession,
    read_lineage,
    succession_text,
)
from node.trust.private_files import create_private, read_private

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.x509 import Certificate, CertificateBuilder

_LINEAGE = re.compile(rb"\Alineage: ([!-~ ]+)\n")
_END = b"-----END PRIVATE KEY-----\n"


class NodeKey:
    """The private key of this node; its ``repr`` shows only the public one."""

    __slots__ = ("_private", "bridges", "identity", "lineage", "public")

    public: Final[bytes]
    """The 32 bytes of the public key."""
    lineage: Final[Lineage]
    """The keys that led to it."""
    identity: Final[str]
    """The identity of the node: its first public key in its printable form."""
    bridges: Final[bytes]
    """Certificates (PEM) by which former keys vouch for later ones, the latest first."""

    def __init__(
        self, private: Ed25519PrivateKey, lineage: Lineage | None = None, bridges: bytes = b""
    ) -> None:
        """Wrap a key that was read or generated; without a ``lineage`` it is the first one."""
        self._private = private
        self.public = private.public_key().public_bytes_raw()
        self.lineage = lineage or Lineage(identity_of(self.public))
        self.identity = self.lineage.identity
        self.bridges = bridges

    def __repr__(self) -> str:
        """Return the public key, never the private part."""
        return f"NodeKey({self.public_text})"

    @property
    def public_text(self) -> str:
        """The public key in its printable form, as every signature names it."""
        return self.lineage.key

    @property
    def pem(self) -> bytes:
        """The content of its file."""
        lineage = f"lineage: {self.lineage}\n".encode() if self.lineage.successions else b""
        return lineage + _pem_of(self._private) + self.bridges

    @classmethod
    def generate(cls) -> NodeKey:
        """Return a new key, without storing it."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load_or_create(cls, path: Path) -> NodeKey:
        """Return the key in the PEM file ``path``; generate and store one if there is no file.

        Two services that start at the same time get the same key.

        :raises HostError: the file is damaged, open to others, or cannot be read or written.
        """
        pem = read_private(path)
        if pem is None:
            # Another service may start at the same time: the key that was stored first counts.
            create_private(path, cls.generate().pem)
            pem = read_private(path)
        try:
            return cls._of_pem(pem or b"")
        except (ValueError, TypeError, UnsupportedAlgorithm, InvalidLineageError) as error:
            raise HostError(_damage_message(path)) from error

    @classmethod
    def _of_pem(cls, pem: bytes) -> NodeKey:
        private = load_pem_private_key(pem, password=None)
        if not isinstance(private, Ed25519PrivateKey):
            raise TypeError("it is another kind of key")
        written = _LINEAGE.match(pem)
        lineage = None if written is None else read_lineage(written[1].decode("ascii"))
        key = cls(private, lineage, pem.partition(_END)[2])
        if key.public_text != identity_of(key.public):
            raise ValueError("its lineage leads to another key")
        return key

    def succeeded_by(self, latter: NodeKey, at: int, bridge: bytes = b"") -> NodeKey:
        """Return a new key as the one that follows this one from an instant on (µs)."""
        signed = succession_text(self.public_text, latter.public_text, at)
        succession = Succession(at, latter.public_text, self.sign(signed), latter.sign(signed))
        lineage = Lineage(self.identity, (*self.lineage.successions, succession))
        return NodeKey(latter._private, read_lineage(str(lineage)), bridge + self.bridges)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of ``data``: 64 bytes."""
        return self._private.sign(data)

    def certify(self, builder: CertificateBuilder) -> Certificate:
        """Return the certificate that a builder describes, signed with this key."""
        return builder.sign(self._private, None)


def _pem_of(private: Ed25519PrivateKey) -> bytes:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _damage_message(path: Path) -> str:
    return (
        f"{path} does not contain an Ed25519 key in PEM form. Restore it from a backup; or "
        "remove it, and the node generates a new key, which the owners of all its peers then have "
        "to add"
    )
