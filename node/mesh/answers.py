"""What nodes answered when they were asked about some tasks of a mesh. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from node.mesh.document import MeshDocument
from node.mesh.findings import Finding, FindingKind
from node.model.errors import FieldFault
from node.model.wire.plans import Outcome, Plan

_REASONS = 3
_CAUSES = {
    Outcome.REFUSED: (FindingKind.REFUSED, "refused"),
    Outcome.UNREACHABLE: (FindingKind.UNREACHABLE, "out of reach"),
    Outcome.NO_TIME: (FindingKind.NO_TIME, "without any time"),
    Outcome.CLOCK: (FindingKind.NO_TIME, "not possible, by the clock"),
}
_REMEDIES = {
    FindingKind.REFUSED: "mend it on the nodes that are named, or take them out of the group",
    FindingKind.UNREACHABLE: "check that these nodes are up; their tasks wait until then",
    FindingKind.NO_TIME: "measure less often, give a longer slip, or a higher priority",
}


@dataclass(frozen=True)
class TaskForecast:
    """What would happen to one task."""

    key: str
    measure: int
    plan: Plan


def forecast_findings(answers: Iterable[TaskForecast]) -> list[Finding]:
    """By entry and outcome: no pair can run it, or some of those that were asked cannot."""
    of: dict[int, list[Plan]] = {}
    for answer in answers:
        of.setdefault(answer.measure, []).append(answer.plan)
    return [
        finding
        for measure, plans in sorted(of.items())
        for outcome in _CAUSES
        for finding in _judged(measure, outcome, plans)
    ]


def _judged(measure: int, outcome: Outcome, plans: Sequence[Plan]) -> list[Finding]:
    bad = [plan for plan in plans if plan.outcome is outcome]
    if not bad:
        return []
    cause, word = _CAUSES[outcome]
    some = f"{len(bad)} of {len(plans)} pairs that were asked are {word}"
    if len(bad) == len(plans):
        some = f"no pair can run this: all {len(plans)} that were asked are {word}"
        if len(plans) == 1:
            some = f"the pair that was asked is {word}"
    reasons = Counter(reason for plan in bad for reason in _reasons(plan))
    said = "; ".join(
        f"{reason} ({count} times)" if count > 1 else reason
        for reason, count in reasons.most_common(_REASONS)
    )
    more = len(reasons) - _REASONS
    said += f"; and {more} other reasons" if more > 0 else ""
    return [Finding(cause, f"/measure/{measure}", f"{some}: {said}", _REMEDIES[cause])]


def _reasons(plan: Plan) -> list[str]:
    """Who says no and why; else what the plan itself says."""
    said = [f"{p.name}: {p.reason}" for p in plan.participants if p.answer != "accepts"]
    return said or [plan.sentence]


def fault_in_mesh_file(document: MeshDocument, measure: int, fault: FieldFault) -> Finding:
    """A fault in a task's document, at its place in the mesh file."""
    entry = document.measure[measure]
    steps = fault.pointer.split("/")
    at = f"/measure/{measure}"
    if steps[1:2] == ["schedule"] and entry.schedule is not None:
        at = "/".join([f"/schedules/{entry.schedule}", *steps[2:]])
    elif steps[1:3] == ["test", "spec"] or steps[1:2] == ["tools"]:
        rest = steps[2:] if steps[1] == "test" else steps[1:]
        at = "/".join([f"/tests/{entry.test}", *rest])
    return Finding(FindingKind.INVALID, at, fault.detail, "")


def other_bookings(answers: Iterable[TaskForecast]) -> dict[str, float]:
    """By node, the share of the next 24 hours in which others have exclusive or normal runs."""
    found: dict[str, float] = {}
    for answer in answers:
        for node in answer.plan.occupancy:
            found[node.name] = max(found.get(node.name, 0.0), node.others)
    return found
