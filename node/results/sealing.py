"""Secrets of archives in the database: sealed in the specs of their destinations.

Where an archiver is not installed, its secret fields are unknown: nothing of its spec can be sealed
then, but what was sealed is still recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from node.model import secrets
from node.model.errors import HostError
from node.results.archivers import archivers
from node.trust.sealing import ARCHIVE, SealingKey


def sealed_spec(key: SealingKey, archiver: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a destination as it is stored."""

    def sealed(value: Any) -> Any:
        return {"sealed": key.seal(value, ARCHIVE)} if isinstance(value, str) else value

    known = archivers().get(archiver)
    return dict(spec) if known is None else secrets.each_text(known.spec_model, spec, sealed)


def opened_spec(key: SealingKey, archiver: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a destination with its secrets, to deliver there.

    :raises HostError: one cannot be read.
    """
    try:
        return _with_opened(spec, lambda sealed: key.open(sealed["sealed"], ARCHIVE))
    except HostError as error:
        raise HostError(
            f"a secret of the {archiver} archive cannot be read: {error.detail}"
        ) from error


def readable_spec(key: SealingKey, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a destination with those of its secrets that can be read."""

    def opened(sealed: Any) -> Any:
        with suppress(HostError):
            return key.open(sealed["sealed"], ARCHIVE)
        return sealed

    return _with_opened(spec, opened)


def _with_opened(spec: Mapping[str, Any], change: secrets.Change) -> dict[str, Any]:
    return dict(secrets.each_sealed(spec, change))
