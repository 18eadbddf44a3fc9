"""``parley limits``: check a file of limits, and show those of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from node.cli.failures import file_text, report
from node.cli.groups import command_group
from node.cli.invocation import Invocation
from node.cli.listing import print_one
from node.cli.options import options
from node.cli.output import Column, RecordLayout
from node.cli.session import ReadingSession, Session, asks_node, reads_node, runs_here
from node.cli.times import local_time_text
from node.mesh.findings import line_of
from node.model.errors import InvalidDocument

if TYPE_CHECKING:
    from node.model.errors import FieldFault
    from node.model.host_limits.caps import Cap
    from node.model.host_limits.rules import Rule

RULE = RecordLayout(
    "rule,who,what,most",
    Column("rule", lambda rule: rule["rule"], whole=True),
    Column("who", lambda rule: rule["who"]),
    Column("what", lambda rule: rule["what"]),
    Column("at most", lambda rule: rule["most"] or "no limit of its own"),
    empty="No rule: other nodes may have nothing of this host.",
)

LIMITS = RecordLayout(
    "file,digest,loaded_at,fault,fault_at,refused_tasks,text",
    key="digest",
)
GRANTED = RecordLayout("node,rules,caps")
TRIAL = RecordLayout(
    "allowed,rule,refusal,counted_priority,left",
    key="rule",
)
_REFUSED = 3


limits_group = command_group("limits")


@limits_group.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=str))
@runs_here
def check(invocation: Invocation, file: str) -> int:
    """Check FILE, as a node reads it: each fault with its line and its field.

    \b
      parley limits check /etc/parley/limits.toml && systemctl reload parley-node

    No node is asked. Without a fault the rules are listed in the order in which they are tried,
    then the caps.
    """  # noqa: D301 - click's mark for lines to keep
    from node.model.host_limits.document import known_limits
    from node.plugins import registry  # loads all plugins

    text = file_text(file)
    try:
        limits = known_limits(text, registry.spec_fields(registry.tests()))
    except InvalidDocument as error:
        return _report(error, file, text, invocation)
    rows = [_row(rule) for rule in limits.rules] + [_cap_row(cap) for cap in limits.caps]
    rows += [_resource_row(name, number) for name, number in limits.resources.items()]
    invocation.writer().print_list(rows, RULE)
    return 0


@limits_group.command("show")
@click.argument("name", required=False, metavar="[NODE]")
@reads_node
async def show(session: ReadingSession, name: str | None) -> None:
    """Show the limits of the node; with NODE, what that node allows this one, and what is left.

    \b
      parley limits show        # what others may have here, and why the file was not taken, if so
      parley limits show b      # what this node may have of b
    """  # noqa: D301 - click's mark for lines to keep
    if name is None:
        await print_one(session, LIMITS, "/limits", limits_view)
    else:
        await print_one(session, GRANTED, f"/nodes/{quote(name, safe='')}/limits", _granted_view)


@limits_group.command("test")
@click.argument("file", metavar="FILE|-")
@options(
    "--as NODE|token:LABEL as lead  The node that leads the task, or the user who creates it here.",
    required=True,
)
@asks_node
async def try_task(session: Session, file: str, lead: str) -> int:
    """Try the task document in FILE against the node's limits, as if NODE had created it.

    \b
      parley limits test --as c task.json
      parley limits test --as token:alice task.json   # a user of this node

    NODE is a name or a key. Says which rule allows the task, or which refuses it, at which field,
    and what would be allowed; and what is left of the quotas. Nothing is stored.
    """  # noqa: D301 - click's mark for lines to keep
    from node.cli.documents import document_from_file  # slow to load

    trial = await session.client.try_limits(lead, document_from_file(file))
    session.output.print_one(trial, TRIAL, _trial_view)
    return 0 if trial.allowed else _REFUSED


def limits_view(shown: Mapping[str, Any]) -> str:
    """Describe the limits of a node for a person: what is known of its file, then its text."""
    place = shown["file"] or "no file: the default"
    lines = [f"# {place}, read at {local_time_text(shown['loaded_at'])}"]
    if shown["fault"]:
        lines.append(f"# ✗ not taken at {shown['fault_at']}: {shown['fault']}")
    if shown["refused_tasks"]:
        lines.append(f"# {shown['refused_tasks']} open tasks of other nodes get no time by these")
    lines += [
        f"# resource {it['name']}: {it['taken']} of {it['number']} taken now, at most {it['peak']} "
        f"by {it['runs']} runs to come"
        for it in shown["resources"] or ()
    ]
    return "\n".join([*lines, shown["text"].rstrip("\n")])


def _granted_view(granted: Mapping[str, Any]) -> str:
    lines = [] if granted["rules"] else [f"{granted['node']} has no rule for this node."]
    for rule in granted["rules"]:
        lines.append(f"{rule['rule']}: {rule['what']}; {rule['most'] or 'no limit of its own'}")
        lines += map(_left_line, rule["left"])
    lines += [f"each target: {cap}" for cap in granted["caps"]]
    return "\n".join(lines)


def _trial_view(trial: Mapping[str, Any]) -> str:
    refusal = trial["refusal"]
    if refusal is None:
        by = f" by '{trial['rule']}'" if trial["rule"] else ": the limits do not bind this user"
        lines = [f"✓ allowed{by}, priority counts as {trial['counted_priority']}"]
    else:
        allowed = f"; allowed: {refusal['allowed']}" if refusal["allowed"] else ""
        rule = f"'{refusal['rule']}'" if refusal["rule"] else "the limits"
        place = refusal["pointer"] or "/"
        lines = [f"✗ refused by {rule} at {place}: {refusal['detail']}{allowed}"]
    return "\n".join([*lines, *map(_left_line, trial["left"])])


def _left_line(left: Mapping[str, Any]) -> str:
    used = f"{left['used']} used, {left['left']} left until {left['free_at']}"
    return f"  {left['name']}: {left['quota']}: {used}"


def _report(error: InvalidDocument, file: str, text: str, invocation: Invocation) -> int:
    """Print each fault with its line; as a problem document if that was asked for."""
    if invocation.wants_json:
        return report(error, invocation)
    for fault in error.faults:
        click.echo(f"✗ {_fault_place(file, text, fault)}: {fault.detail}", err=True)
    return error.exit_code


def _fault_place(file: str, text: str, fault: FieldFault) -> str:
    line = line_of(text, fault.pointer) if fault.pointer else None
    at = f"{file}:{line}" if line else file
    return f"{at}: {fault.pointer}" if fault.pointer else at


def _row(rule: Rule) -> dict[str, Any]:
    return {
        "rule": rule.name,
        "who": ", ".join(rule.who),
        "what": rule.what_in_words(),
        "most": rule.most_in_words(),
    }


def _cap_row(cap: Cap) -> dict[str, Any]:
    return {
        "rule": cap.name,
        "who": _cap_text(cap),
        "what": _capped_quantity(cap),
        "most": cap.in_words(),
    }


def _resource_row(name: str, number: int) -> dict[str, Any]:
    return {"rule": name, "who": "the whole fleet", "what": "a resource", "most": f"{number}"}


def _cap_text(cap: Cap) -> str:
    if not cap.who:
        return "all nodes together"
    return f"{'each of' if cap.each else 'together'} {', '.join(cap.who)}"


def _capped_quantity(cap: Cap) -> str:
    if cap.who:
        return "all runs" if cap.classes is None else ", ".join(sorted(cap.classes))
    return "targets" if cap.networks is None else ", ".join(map(str, cap.networks))
