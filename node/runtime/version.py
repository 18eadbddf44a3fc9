"""The version of this program, and the name by which a node calls itself to servers."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from node.model.useragent import user_agent
from node.runtime.settings import Settings


@cache
def program_version() -> str:
    """The installed version of Parley, for cards, descriptions, and our own measuring programs."""
    try:
        return version("parley-scheduler")
    except PackageNotFoundError:
        return "0"


def agent_of(settings: Settings) -> str:
    """Return the name by which a node calls itself to servers of HTTP, with its contact."""
    return user_agent(program_version(), settings.shown_contact)
