"""Outcomes of runs, made from the recorded output of real tools, for pScheduler's languages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from node.execution.launcher import output_text
from node.plugins import registry
from node.plugins.contracts import Command, Output, Part
from node.pscheduler.tests.contract import Outcome, PartOutcome
from tests.unit.plugins.parts import context


def outcome_of(test: str, tool: str, outputs: Sequence[Output], **fields: Any) -> Outcome:
    """Return the outcome of a run whose parts printed these outputs, by the spec of ``fields``."""
    known = next(each for each in registry.tools_for(test) if each.name == tool)
    parts, told = [], []
    for participant, output in enumerate(outputs):
        place = context(test, participant, **fields)
        result = known.read(place, output)
        parts.append(Part(participant, place.parties[participant].name, result))
        command: Command = known.command(place)
        told.append(PartOutcome(parts[-1].name, command.argv, output_text(output), result))
    place = context(test, **fields)
    merged = registry.tests()[test].merge(place.spec, parts)
    return Outcome(tool, merged.result, merged.reason, told)
