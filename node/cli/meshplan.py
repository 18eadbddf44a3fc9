"""``parley plan mesh``: what a mesh file would change, and what would come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from node.cli.meshfile import MeshAnalysis, MeshForecast, analyse_mesh, forecast_mesh
from node.cli.output import Record, RecordLayout, aligned, printable
from node.cli.session import Session, asks_node
from node.cli.times import local
from node.mesh.sampling import covering_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from node.mesh.answers import TaskForecast

PLAN = RecordLayout(columns=(), fields=("mesh", "tasks", "asked", "sentence"), empty="", key="mesh")

_FEW = 20
_LISTED = 10


@click.command("mesh")
@click.argument("file")
@asks_node
async def mesh(session: Session, file: str) -> int:
    """Say what applying a mesh file would change, what is wrong with it, and how full nodes get.

    \b
      parley plan mesh lab.toml
      parley plan mesh lab.toml -o json

    Up to 20 new tasks are all asked about; of more, pairs such that each node is asked at least
    once. Each is asked alone, as if the other new ones were not there. The exit code is 2 where
    the file is wrong, 3 where nodes refuse, 5 where they are out of reach, 4 where time is short.
    """  # noqa: D301 - click's mark for lines to keep
    found = await analyse_mesh(session, file)
    counsel = await forecast_mesh(session, found, _keys(found))
    session.output.one(record_of(counsel), PLAN, plan_view)
    return counsel.study.exit_code


def _keys(found: MeshAnalysis) -> list[str]:
    new = {creation.key: creation.pair for creation in found.comparison.create}
    return list(new) if len(new) <= _FEW else covering_keys(new)


def record_of(counsel: MeshForecast) -> dict[str, Any]:
    """All that is known of a mesh file, as JSON."""
    found = counsel.study
    document, compared = found.document, found.comparison
    nodes = [
        {"name": name, **{k: v for k, v in vars(load).items() if k != "by_measure"},
         "booked": load.booked}
        for name, load in sorted(counsel.loads.items(), key=lambda item: -item[1].booked)
    ]  # fmt: skip
    return {
        "mesh": None if document is None else document.name,
        "file": found.path,
        "sentence": sentence(found),
        "findings": [found.record(finding) for finding in found.findings],
        "tasks": len(found.expansion.pairs),
        **difference(found),
        "unchanged": compared.unchanged,
        "paused": compared.paused,
        "asked": len(counsel.answers),
        "sampled": len(counsel.answers) < len(compared.create),
        "plans": [_plan(answer) for answer in counsel.answers],
        "nodes": nodes,
    }


def difference(found: MeshAnalysis) -> dict[str, Any]:
    """What differs between a file and what there is, task by task."""
    compared = found.comparison
    return {
        "create": [creation.key for creation in compared.create],
        "edit": [
            {"key": edit.task.key, "task": str(edit.task.id), "differences": edit.differences}
            for edit in compared.edit
        ],
        "end": [
            {"key": ending.task.key, "task": str(ending.task.id), "reason": ending.reason}
            for ending in compared.end
        ],
    }


def sentence(found: MeshAnalysis) -> str:
    """What would be done, in one sentence."""
    if found.stopped:
        return "the file has to be mended first"
    compared = found.comparison
    if compared.nothing:
        return f"what exists is what the file says: {_tasks(compared.unchanged)}"
    parts = [
        f"{len(tasks)} to {verb}"
        for verb, tasks in (
            ("create", compared.create), ("edit", compared.edit), ("end", compared.end)
        )
        if tasks
    ]  # fmt: skip
    return f"{', '.join(parts)}, {compared.unchanged} unchanged"


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"


def _plan(answer: TaskForecast) -> dict[str, Any]:
    plan = answer.plan.model_dump(mode="json")
    starts = plan["starts"]
    return {
        "key": answer.key,
        **{name: plan[name] for name in ("outcome", "sentence", "asked", "placed", "duration")},
        "scheduling_class": plan["scheduling_class"],
        "starts_at": starts[0]["starts_at"] if starts else None,
        "reason": next((run["reason"] for run in plan["unplaced"]), None),
        "displaced": plan["displaced_count"],
        "added_s": {full["name"]: full["added_s"] for full in plan["occupancy"]},
    }


def plan_view(plan: Record) -> str:
    """A plan of a mesh for a person."""
    head = f"mesh {plan['mesh'] or '?'} ({printable(plan['file'])}): {plan['sentence']}"
    sections = [
        [head, *(["(nothing is booked or kept by asking)"] if plan["asked"] else [])],
        findings_view(plan["file"], plan["findings"]),
        _changes(plan),
        _answers(plan),
        _nodes(plan),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def findings_view(path: str, findings: Sequence[Record]) -> list[str]:
    """What is wrong: the place in the file, what, and on a line of its own what to do."""
    lines = []
    for found in findings:
        place = f"{path}:{found['line']}" if found["line"] else path
        mark = "✗" if found["cause"] == "invalid" else "!"
        where = found["pointer"] or "/"
        lines.append(printable(f"{mark} {place}: {where}: {found['detail']}"))
        lines += [f"  {printable(found['remedy'])}"] if found["remedy"] else []
    return lines


def _changes(plan: Record) -> list[str]:
    lines = _listed("Create", [[key] for key in plan["create"]])
    edits = [[edit["key"], "; ".join(edit["differences"])] for edit in plan["edit"]]
    lines += _listed("Edit", edits)
    return lines + _listed("End", [[ending["key"], ending["reason"]] for ending in plan["end"]])


def _listed(title: str, rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    shown = [list(map(printable, row)) for row in rows[:_LISTED]]
    lines = [f"{title} {len(rows)}", *aligned(shown, indent="  ").splitlines()]
    more = len(rows) - _LISTED
    return [*lines, f"  and {more} more; -o json lists them"] if more > 0 else lines


def _answers(plan: Record) -> list[str]:
    if not plan["plans"]:
        return []
    head = f"What would happen, asked of {plan['asked']} tasks, each alone"
    if plan["sampled"]:
        head += f" (a sample of the {len(plan['create'])} new ones in which each node is asked)"
    rows = [
        [
            answer["key"],
            answer["outcome"],
            f"{answer['placed']} of {answer['asked']}",
            local(answer["starts_at"]),
            f"{answer['displaced']} displaced" if answer["displaced"] else "",
        ]
        for answer in plan["plans"][:_LISTED]
    ]
    lines = [head, *aligned([list(map(printable, row)) for row in rows], indent="  ").splitlines()]
    more = len(plan["plans"]) - _LISTED
    lines += [f"  and {more} more; -o json lists them"] if more > 0 else []
    return lines + _why_partly(plan["plans"])


def _share(node: Record, name: str) -> str:
    """What others have is not known of nodes that were not asked, or found no time."""
    if node[name] is None:
        return "unknown"
    more = "+" if name == "booked" and node["others"] is None else ""
    return f"{node[name]:.1%}{more}"


def _why_partly(plans: Sequence[Record]) -> list[str]:
    """For what some runs of those that are not refused would wait; the findings say of others."""
    waiting: dict[str, list[str]] = {}
    for answer in plans:
        if answer["outcome"] == "partly" and answer["reason"]:
            waiting.setdefault(answer["reason"], []).append(answer["key"])
    lines = []
    for reason, keys in list(waiting.items())[:_LISTED]:
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        lines.append("  " + printable(f"partly: {keys[0]}{more}: {reason}"))
    return lines


def _nodes(plan: Record) -> list[str]:
    if not plan["nodes"]:
        return []
    names = ("booked", "exclusive", "normal", "background", "others")
    shown = plan["nodes"][:_LISTED]
    rows = [[printable(node["name"]), *(_share(node, name) for name in names)] for node in shown]
    lines = [
        "Share of the nodes' time, the fullest first (background runs stand in nobody's way"
        + ("; +: and what others have)" if any(n["others"] is None for n in shown) else ")"),
        *aligned([["node", *names], *rows], indent="  ").splitlines(),
    ]
    more = len(plan["nodes"]) - _LISTED
    return [*lines, f"  and {more} more; -o json lists them"] if more > 0 else lines
