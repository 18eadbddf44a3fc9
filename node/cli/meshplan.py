"""``parley plan mesh``: what a mesh file would change, and how full nodes would get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from node.cli.meshfile import MeshAnalysis, MeshForecast, analyse_mesh, forecast_mesh
from node.cli.output import (
    Record,
    RecordLayout,
    plural,
    printable_text,
    readable_text,
    titled_lines,
)
from node.cli.session import Session, asks_node
from node.cli.times import local_time_text
from node.mesh.sampling import covering_keys
from node.model.wire.plans import PLANS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from node.mesh.answers import TaskForecast

PLAN = RecordLayout("mesh,tasks,asked,sentence")

_LISTED = 10


@click.command("mesh")
@click.argument("file")
@asks_node
async def mesh(session: Session, file: str) -> int:
    """Preview a mesh file: what would change, what is wrong with it, and how full nodes get.

    \b
      parley plan mesh lab.toml
      parley plan mesh lab.toml -o json

    Up to 64 new tasks are all previewed, as mesh apply creates them: each beside the others, with
    what these leave of the nodes' time and of their owners' quotas. Of more, a sample in which each
    node takes part at least once. The exit code is 2 if the file is wrong, 3 if nodes refuse, 5 if
    they cannot be reached, 4 if time is short.
    """  # noqa: D301 - click's mark for lines to keep
    analysis = await analyse_mesh(session, file)
    forecast = await forecast_mesh(session, analysis, keys_to_preview(analysis))
    session.output.print_one(record_of(forecast), PLAN, plan_view)
    return forecast.analysis.exit_code


def keys_to_preview(analysis: MeshAnalysis) -> list[str]:
    """Return the keys of the new tasks to preview: all, or PLANS_MAX that cover all entries."""
    new = {creation.key: creation.pair for creation in analysis.comparison.create}
    return list(new) if len(new) <= PLANS_MAX else covering_keys(new)


def record_of(forecast: MeshForecast) -> dict[str, Any]:
    """Return a forecast as the JSON object that the command prints."""
    analysis = forecast.analysis
    document, compared = analysis.document, analysis.comparison
    nodes = [
        {"name": name, **{k: v for k, v in vars(load).items() if k != "by_measure"},
         "booked": load.booked_share}
        for name, load in sorted(forecast.loads.items(), key=lambda item: -item[1].booked_share)
    ]  # fmt: skip
    return {
        "mesh": None if document is None else document.name,
        "file": analysis.path,
        "sentence": change_summary(analysis),
        "findings": [analysis.record(finding) for finding in analysis.findings],
        "tasks": len(analysis.expansion.pairs),
        **difference(analysis),
        "unchanged": compared.unchanged,
        "paused": compared.paused,
        "together": compared.together,
        "asked": len(forecast.answers),
        "sampled": len(forecast.answers) < len(compared.create),
        "plans": [_plan(answer) for answer in forecast.answers],
        "nodes": nodes,
    }


def difference(analysis: MeshAnalysis) -> dict[str, Any]:
    """Return the differences between a file and the existing tasks, task by task."""
    compared = analysis.comparison
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


def change_summary(analysis: MeshAnalysis) -> str:
    """Return how many tasks would be created, edited and ended, in one sentence."""
    if analysis.stopped:
        return "the file has errors that must be corrected first"
    compared = analysis.comparison
    together = (
        f"; {compared.together} start together, as an earlier version created them: "
        "parley mesh apply --spread spreads them over their interval"
        if compared.together
        else ""
    )
    if compared.nothing:
        matching = plural(compared.unchanged, "task")
        return f"the existing tasks match the file: {matching}{together}"
    parts = [
        f"{len(tasks)} to {verb}"
        for verb, tasks in (
            ("create", compared.create), ("edit", compared.edit), ("end", compared.end)
        )
        if tasks
    ]  # fmt: skip
    return f"{', '.join(parts)}, {compared.unchanged} unchanged{together}"


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
    """Describe the plan of a mesh for a person."""
    head = f"mesh {plan['mesh'] or '?'} ({printable_text(plan['file'])}): {plan['sentence']}"
    sections = [
        [head, *(["(nothing was booked or stored)"] if plan["asked"] else [])],
        findings_view(plan["file"], plan["findings"]),
        _changes(plan),
        _answers(plan),
        _nodes(plan),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def findings_view(path: str, findings: Sequence[Record]) -> list[str]:
    """Describe each finding: its place in the file, the fault, and the remedy on its own line."""
    lines = []
    for finding in findings:
        place = f"{path}:{finding['line']}" if finding["line"] else path
        mark = "✗" if finding["cause"] == "invalid" else "!"
        where = finding["pointer"] or "/"
        lines.append(readable_text(f"{mark} {place}: {where}: {finding['detail']}"))
        lines += [f"  {readable_text(finding['remedy'])}"] if finding["remedy"] else []
    return lines


def _changes(plan: Record) -> list[str]:
    lines = _titled_rows("Create", [[key] for key in plan["create"]])
    edits = [[edit["key"], "; ".join(edit["differences"])] for edit in plan["edit"]]
    lines += _titled_rows("Edit", edits)
    return lines + _titled_rows(
        "End", [[ending["key"], ending["reason"]] for ending in plan["end"]]
    )


def _titled_rows(title: str, rows: list[list[str]]) -> list[str]:
    readable = [list(map(readable_text, row)) for row in rows]
    return titled_lines(f"{title} {len(rows)}", readable, _LISTED)


def _answers(plan: Record) -> list[str]:
    head = f"Preview of {plural(plan['asked'], 'task')} together"
    if plan["sampled"]:
        head += f" (a sample of the {len(plan['create'])} new ones in which each node takes part)"
    rows = [
        [
            answer["key"],
            answer["outcome"],
            f"{answer['placed']} of {answer['asked']}",
            local_time_text(answer["starts_at"]),
            f"{answer['displaced']} displaced" if answer["displaced"] else "",
        ]
        for answer in plan["plans"]
    ]
    printable = [list(map(printable_text, row)) for row in rows]
    return titled_lines(head, printable, _LISTED) + _waiting_reasons(plan["plans"])


def _share(node: Record, name: str) -> str:
    """Format a share; "+" marks a lower bound, where other leads' bookings are unknown."""
    if node[name] is None:
        return "unknown"
    more = "+" if name == "booked" and node["others"] is None else ""
    return f"{node[name]:.1%}{more}"


def _waiting_reasons(plans: Sequence[Record]) -> list[str]:
    """Return why some runs would wait, most frequent first; tasks without any time are findings."""
    waiting: dict[str, list[str]] = {}
    for answer in plans:
        if answer["outcome"] == "partly" and answer["reason"]:
            waiting.setdefault(answer["reason"], []).append(answer["key"])
    lines = []
    for reason, keys in list(waiting.items())[:_LISTED]:
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        lines.append("  " + readable_text(f"partly: {keys[0]}{more}: {reason}"))
    return lines


def _nodes(plan: Record) -> list[str]:
    if not plan["nodes"]:
        return []
    names = ("booked", "exclusive", "normal", "background", "others")
    shown = plan["nodes"][:_LISTED]
    rows = [
        [printable_text(node["name"]), *(_share(node, name) for name in names)] for node in shown
    ]
    title = "Share of the nodes' time, the fullest first (background runs do not block others"
    title += "; +: at least)" if any(node["others"] is None for node in shown) else ")"
    return titled_lines(title, [["node", *names], *rows], count=len(plan["nodes"]) + 1)
