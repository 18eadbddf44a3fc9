"""The common properties of the iputils programs, which share one version. Pure."""

from __future__ import annotations

from node.plugins.contracts import Privilege, Requirement

VERSION = r"iputils[ -](?:s?)(\d+)"

TRIED: tuple[str, ...] = ("20221126",)

PING = Requirement(
    "ping",
    "iputils-ping",
    ("ping", "-V"),
    VERSION,
    privilege=lambda _: Privilege.ECHO,
    connects=lambda _: False,
)
