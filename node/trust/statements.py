"""Signed statements: what a node says for good, to be checked by anybody who has its public key.

A statement is a JSON object of claims in a compact JWS (RFC 7515) with Ed25519 (``Ed25519``, RFC
9864). Its header has three members: ``alg``, ``kid`` (the key of the signer), and ``typ``, so that
a statement of one kind is none of another; and a fourth one, ``lineage``, if the key is not the
node's first one (:mod:`node.trust.lineage`). Header and claims are canonical JSON.
Any JWS library checks the signature. Large values are not claims: the claim ``sha256`` has the
digests (:func:`node.model.canonical.digest`) of named values that travel beside the statement, so
that a check names the value that was changed.

**Own code** on top of ``cryptography``: nodes accept this one form, and nothing that the signer
could choose. The tests hold it against the library ``joserfc``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from node.model.canonical import canonical, digest
from node.model.wire.participants import SIGNATURE_LENGTH_MAX
from node.trust.identities import verify
from node.trust.keys import NodeKey
from node.trust.lineage import InvalidLineageError, Lineage, read_lineage

_PARTS = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{86})", re.ASCII)


class StatementKind(StrEnum):
    """The subject of a statement: the ``typ`` of its header."""

    PART = "parley-part+jws"
    INTERVAL = "parley-interval+jws"
    BUNDLE = "parley-bundle+jws"
    ANNOUNCEMENT = "parley-announcement+jws"
    DIRECTORY = "parley-directory+jws"
    REVOCATION = "parley-revocation+jws"
    PROCESS = "parley-process+jws"


class InvalidStatementError(Exception):
    """A text is not a statement of the expected kind with a valid signature; says why."""


@dataclass(frozen=True)
class Statement:
    """A statement whose signature is valid: its signer's lineage, and the claims.

    Whether the node has replaced that key since, the statement cannot tell.
    """

    lineage: Lineage
    claims: Mapping[str, Any]

    @property
    def identity(self) -> str:
        """The identity of the node that signed it."""
        return self.lineage.identity

    @property
    def key(self) -> str:
        """The key that signed it."""
        return self.lineage.key

    def changed_names(self, values: Mapping[str, Any]) -> list[str]:
        """Return the names of those of the values that are not the ones that were signed.

        All signed values must be there, and no others.
        """
        signed = self.claims.get("sha256")
        if not isinstance(signed, dict):
            return sorted(values)
        return sorted(
            name
            for name in signed.keys() | values.keys()
            if name not in values or not _is_digest(signed.get(name), values[name])
        )


def sign_statement(key: NodeKey, kind: StatementKind, claims: Mapping[str, Any]) -> str:
    """Return a statement with these claims.

    :raises ValueError: the claims are not JSON.
    """
    signed = f"{_encode(_header(key.lineage, kind))}.{_encode(canonical(claims))}"
    return f"{signed}.{_encode(key.sign(signed.encode('ascii')))}"


def digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the claim ``sha256`` for these values.

    :raises ValueError: one of them is not JSON.
    """
    return {name: digest(value) for name, value in values.items()}


def read_statement(text: str, kind: StatementKind) -> Statement:
    """Return a statement of this kind, with a valid signature.

    :raises InvalidStatementError: it is none, or has been changed. No other exception is raised,
        whatever the text is.
    """
    parts = _PARTS.fullmatch(text) if len(text) <= SIGNATURE_LENGTH_MAX else None
    if parts is None:
        raise InvalidStatementError("it is not a compact JWS with an Ed25519 signature")
    header, payload, signature = (_decode(part) for part in parts.groups())
    lineage = _lineage_in(_json(header))
    if header != _header(lineage, kind):
        raise InvalidStatementError(f"its header is not that of a {kind}")
    if not verify(lineage.key, signature, text.rpartition(".")[0].encode("ascii")):
        raise InvalidStatementError(
            f"its signature is wrong: it was changed, or not made with the key {lineage.key}"
        )
    return Statement(lineage, _json(payload))


def _header(lineage: Lineage, kind: StatementKind) -> bytes:
    followed = {"lineage": str(lineage)} if lineage.successions else {}
    return canonical({"alg": "Ed25519", "kid": lineage.key, "typ": kind.value, **followed})


def _lineage_in(header: Mapping[str, Any]) -> Lineage:
    text = header.get("lineage", header.get("kid"))
    try:
        return read_lineage(text if isinstance(text, str) else "")
    except InvalidLineageError as error:
        if "lineage" in header:
            raise InvalidStatementError(f"its lineage is not valid: {error}") from None
        raise InvalidStatementError("its header names no key of a node") from None


def _is_digest(signed: object, value: object) -> bool:
    try:
        return digest(value) == signed
    except ValueError:
        return False


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes:
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) if len(text) % 4 != 1 else b""
    if _encode(data) != text:  # unused bits of the last character: another spelling
        raise InvalidStatementError("it is not in base64url as it should be")
    return data


def _json(data: bytes) -> dict[str, Any]:
    """Parse an object in its canonical form, the only one that is accepted."""
    try:
        value = json.loads(data)
        sound = isinstance(value, dict) and canonical(value) == data
    except (ValueError, RecursionError):
        sound, value = False, {}
    if not sound:
        raise InvalidStatementError("its header or its claims are not canonical JSON")
    assert isinstance(value, dict)  # noqa: S101 - checked above
    return value
