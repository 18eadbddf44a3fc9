"""The registry of archivers.

A new one of Parley's own is one module in ``plugins/archivers`` and one line here; those of other
distributions are found by their entry points (:mod:`node.plugins.discovery`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.util import find_spec

from node.plugins.archivers import (
    bitbucket,
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
from node.plugins.discovery import DiscoveredPlugin, by_name, check_plugins
from node.runtime.extras import install_command

_ARCHIVERS: tuple[Archiver, ...] = (
    bitbucket.ARCHIVER,
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


@functools.cache
def archivers() -> Mapping[str, Archiver]:
    """Return all archivers by name."""
    return by_name("parley.archivers", _ARCHIVERS)


def third_party_archivers() -> tuple[DiscoveredPlugin, ...]:
    """Return the archivers of other distributions, with the reasons of unusable ones, by name."""
    return tuple(check_plugins("parley.archivers", _ARCHIVERS))


def missing_requirement(archiver: Archiver) -> str | None:
    """Return what to install before the archiver can be used; None if nothing is missing."""
    if not isinstance(archiver, Extra) or all(map(_is_installed, archiver.modules)):
        return None
    return (
        f"the archiver {archiver.name} needs a client that is not installed on this host; "
        f"install it: {install_command(archiver.extra)}"
    )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the containing package is missing, too
        return False
