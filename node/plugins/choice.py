"""Explains why a task uses its tool, from the answers of its participants. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from node.plugins import registry
from node.plugins.contracts import Tool


@dataclass(frozen=True)
class ToolOffer:
    """A participant's answer: the tools it offers, and why it lacks the others.

    ``accepted`` is None while it has not answered.
    """

    name: str
    accepted: bool | None
    tools: Sequence[str]
    lacks: Mapping[str, str] = field(default_factory=dict)


def explain_choice(
    test: str, chosen: str, requested: Sequence[str], spec: Any, participants: Sequence[ToolOffer]
) -> str:
    """Explain in one sentence why ``chosen`` is used: what ranks before it, and why that cannot be.

    ``requested`` are the tools that the task names, best first; none means any.
    """
    candidates = [
        tool for tool in registry.tools_for(test) if not requested or tool.name in requested
    ]
    if requested:
        candidates.sort(key=lambda tool: requested.index(tool.name))
    names = [tool.name for tool in candidates]
    if chosen not in names:
        return "was chosen when other tools were known or requested"
    better = candidates[: names.index(chosen)]
    if not better:
        return _first_choice_text(names, test, requested=bool(requested))
    rank = "requested before it" if requested else "better"
    return "; ".join(
        f"{tool.name} is {rank}, but {_objection(tool, spec, participants)}" for tool in better
    )


def _first_choice_text(names: Sequence[str], test: str, *, requested: bool) -> str:
    if requested:
        return "requested" if len(names) == 1 else "the first of those requested"
    return f"the only tool for {test}" if len(names) == 1 else f"the best tool for {test}"


def _objection(tool: Tool, spec: Any, participants: Sequence[ToolOffer]) -> str:
    """Return why a tool was not chosen."""
    unable = tool.can(spec)
    if unable is not None:
        return unable
    objections = [
        f"{each.name}: {each.lacks.get(tool.name, 'does not offer it')}"
        for each in participants
        if each.accepted and tool.name not in each.tools
    ]
    if objections:
        return "; ".join(objections)
    silent = [each.name for each in participants if each.accepted is None]
    if silent:
        return f"{', '.join(silent)} had not answered"
    return "all participants have it now; edit the task to use it"
