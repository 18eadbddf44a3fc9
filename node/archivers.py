"""Which archivers there are.

A new one of Parley's own is one module in ``plugins/archivers`` and one line here; those of other
distributions are found by their entry points (:mod:`node.plugins.discovery`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from node.plugins.archivers import file, http, sockets, syslog
from node.plugins.contracts import Archiver
from node.plugins.discovery import Found, by_name, judged

_ARCHIVERS: tuple[Archiver, ...] = (
    file.ARCHIVER,
    http.ARCHIVER,
    sockets.TCP,
    sockets.UDP,
    syslog.ARCHIVER,
)


@functools.cache
def archivers() -> Mapping[str, Archiver]:
    """All archivers by name."""
    return by_name("parley.archivers", _ARCHIVERS)


def foreign() -> tuple[Found, ...]:
    """What other distributions bring, also what cannot be used and why; by name."""
    return tuple(judged("parley.archivers", _ARCHIVERS))
