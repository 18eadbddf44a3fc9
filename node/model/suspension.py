"""The suspension of campaigns, which holds for all below them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from node.model.wire.campaigns import SUSPENDED


class Standing(Protocol):
    """A campaign as far as it matters whether it is suspended."""

    @property
    def level(self) -> int:
        """The precedence among campaigns; ``SUSPENDED`` holds all of its runs."""
        ...

    @property
    def parent(self) -> str | None:
        """The campaign above it, if there is one."""
        ...


def suspended_in(campaign: str, campaigns: Mapping[str, Standing]) -> str | None:
    """Return the highest suspended one of a campaign and those above it; None without any."""
    suspended: str | None = None
    name: str | None = campaign
    while name is not None and name in campaigns:
        suspended = name if campaigns[name].level == SUSPENDED else suspended
        name = campaigns[name].parent
    return suspended
