"""Which archivers there are. A new one is one module in ``plugins/archivers`` and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from node.plugins.archivers import file, http, sockets, syslog
from node.plugins.contracts import Archiver

_ARCHIVERS: tuple[Archiver, ...] = (
    file.ARCHIVER,
    http.ARCHIVER,
    sockets.TCP,
    sockets.UDP,
    syslog.ARCHIVER,
)

_BY_NAME = MappingProxyType({archiver.name: archiver for archiver in _ARCHIVERS})


def archivers() -> Mapping[str, Archiver]:
    """All archivers by name."""
    return _BY_NAME
