"""Which archivers there are. A new one is one module in ``plugins/archivers`` and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from node.plugins.archivers import (
    file,
    http,
    kafka,
    otlp,
    postgresql,
    prometheus,
    rabbitmq,
    s3,
    sockets,
    syslog,
)
from node.plugins.contracts import Archiver, Extra

_ARCHIVERS: tuple[Archiver, ...] = (
    file.ARCHIVER,
    http.ARCHIVER,
    kafka.ARCHIVER,
    otlp.ARCHIVER,
    postgresql.ARCHIVER,
    prometheus.ARCHIVER,
    rabbitmq.ARCHIVER,
    s3.ARCHIVER,
    sockets.TCP,
    sockets.UDP,
    syslog.ARCHIVER,
)

_BY_NAME = MappingProxyType({archiver.name: archiver for archiver in _ARCHIVERS})


def archivers() -> Mapping[str, Archiver]:
    """All archivers by name."""
    return _BY_NAME


def missing(archiver: Archiver) -> str | None:
    """What to install before it can be used; None if all is there."""
    if not isinstance(archiver, Extra) or all(map(_is_there, archiver.modules)):
        return None
    return (
        f"the archiver {archiver.name} needs a client that is not installed on this host; "
        f"install it: pip install 'parley[{archiver.extra}]'"
    )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package it is in
        return False
