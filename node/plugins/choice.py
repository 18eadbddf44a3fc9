"""Why a task has the tool that it has, out of what its participants said. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from node.plugins import registry
from node.plugins.contracts import Tool


@dataclass(frozen=True)
class ToolOffer:
    """A participant: the tools it would measure with, and why with no others.

    ``accepted`` is None while it has not answered.
    """

    name: str
    accepted: bool | None
    tools: Sequence[str]
    lacks: Mapping[str, str] = field(default_factory=dict)


def explain_choice(
    test: str, chosen: str, asked: Sequence[str], spec: Any, participants: Sequence[ToolOffer]
) -> str:
    """Why ``chosen`` it is, in one sentence: what would have come first, and what it fails by.

    ``asked`` are the tools that the task names, best first; none is any.
    """
    known = [tool for tool in registry.tools_for(test) if not asked or tool.name in asked]
    if asked:
        known.sort(key=lambda tool: asked.index(tool.name))
    names = [tool.name for tool in known]
    if chosen not in names:
        return "was chosen when other tools were known or asked for"
    better = known[: names.index(chosen)]
    if not better:
        return _first_of(names, test, asked=bool(asked))
    first = "asked for before it" if asked else "better"
    return "; ".join(
        f"{tool.name} is {first}, but {_not(tool, spec, participants)}" for tool in better
    )


def _first_of(names: Sequence[str], test: str, *, asked: bool) -> str:
    if asked:
        return "asked for" if len(names) == 1 else "the first of those asked for"
    return f"the only tool for {test}" if len(names) == 1 else f"the best tool for {test}"


def _not(tool: Tool, spec: Any, participants: Sequence[ToolOffer]) -> str:
    """What speaks against a tool."""
    unable = tool.can(spec)
    if unable is not None:
        return unable
    against = [
        f"{each.name}: {each.lacks.get(tool.name, 'does not offer it')}"
        for each in participants
        if each.accepted and tool.name not in each.tools
    ]
    if against:
        return "; ".join(against)
    silent = [each.name for each in participants if each.accepted is None]
    if silent:
        return f"{', '.join(silent)} had not answered"
    return "all have it now; the task takes it when it is edited"
