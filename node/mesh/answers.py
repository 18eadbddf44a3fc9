"""Turn the previews of some tasks of a mesh into findings. Pure."""

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
    Outcome.UNREACHABLE: (FindingKind.UNREACHABLE, "unreachable"),
    Outcome.NO_TIME: (FindingKind.NO_TIME, "without free time"),
    Outcome.CLOCK: (FindingKind.NO_TIME, "refused because of a clock"),
}
_REMEDIES = {
    FindingKind.REFUSED: "correct it on the named nodes, or remove them from the group",
    FindingKind.UNREACHABLE: "check that these nodes are up; their tasks wait until then",
    FindingKind.NO_TIME: "measure less often, give a longer slip, or a higher priority",
}


@dataclass(frozen=True)
class TaskForecast:
    """The preview of one task, with its key and the number of its entry."""

    key: str
    measure: int
    plan: Plan


def forecast_findings(answers: Iterable[TaskForecast]) -> list[Finding]:
    """Return a finding for each entry and outcome: no pair can run it, or some pairs cannot."""
    by_entry: dict[int, list[Plan]] = {}
    for answer in answers:
        by_entry.setdefault(answer.measure, []).append(answer.plan)
    return [
        finding
        for measure, plans in sorted(by_entry.items())
        for outcome in _CAUSES
        for finding in _entry_findings(measure, outcome, plans)
    ]


def _entry_findings(measure: int, outcome: Outcome, plans: Sequence[Plan]) -> list[Finding]:
    bad = [plan for plan in plans if plan.outcome is outcome]
    if not bad:
        return []
    cause, word = _CAUSES[outcome]
    some = f"{len(bad)} of {len(plans)} previewed pairs are {word}"
    if len(bad) == len(plans):
        some = f"no pair can run this: all {len(plans)} previewed pairs are {word}"
        if len(plans) == 1:
            some = f"the previewed pair is {word}"
    reasons = Counter(reason for plan in bad for reason in _reasons(plan))
    details = "; ".join(
        f"{reason} ({count} times)" if count > 1 else reason
        for reason, count in reasons.most_common(_REASONS)
    )
    more = len(reasons) - _REASONS
    details += f"; and {more} other reasons" if more > 0 else ""
    return [Finding(cause, f"/measure/{measure}", f"{some}: {details}", _REMEDIES[cause])]


def _reasons(plan: Plan) -> list[str]:
    """Return each participant that does not accept, with its reason; else the plan's sentence."""
    refusals = [f"{p.name}: {p.reason}" for p in plan.participants if p.answer != "accepts"]
    return refusals or [plan.sentence]


def fault_in_mesh_file(document: MeshDocument, measure: int, fault: FieldFault) -> Finding:
    """Return a fault in a task's document as a finding at its place in the mesh file."""
    entry = document.measure[measure]
    steps = fault.pointer.split("/")
    at = f"/measure/{measure}"
    if steps[1:2] == ["schedule"] and entry.schedule is not None:
        at = "/".join([f"/schedules/{entry.schedule}", *steps[2:]])
    elif steps[1:2] == ["archives"] and len(steps) > 2:  # noqa: PLR2004 - with its place
        at = "/".join([f"/archives/{entry.archives[int(steps[2])]}", *steps[3:]])
    elif steps[1:2] == ["after"]:
        at = "/".join([at, *steps[1:]])
    elif steps[1:3] == ["test", "spec"] or steps[1:2] == ["tools"]:
        rest = steps[2:] if steps[1] == "test" else steps[1:]
        at = "/".join([f"/tests/{entry.test}", *rest])
    return Finding(FindingKind.INVALID, at, fault.detail, "")


def other_bookings(answers: Iterable[TaskForecast]) -> dict[str, float]:
    """Return, by node, the share of the next 24 hours that others have booked (not background).

    Where several previews tell of a node, the highest share counts.
    """
    shares: dict[str, float] = {}
    for answer in answers:
        for node in answer.plan.occupancy:
            shares[node.name] = max(shares.get(node.name, 0.0), node.others)
    return shares
