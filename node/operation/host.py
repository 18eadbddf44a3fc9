"""The checks of this host alone: its services, clock, disk, tools, limits, load."""

from __future__ import annotations

import os
from collections.abc import Iterator

from node.execution.catalog import Capabilities
from node.model.diagnosis import load_check, passed_check
from node.model.errors import HostError
from node.model.wire.checks import Check, CheckState, Diagnosis
from node.model.wire.status import NodeStatus
from node.operation.status import status_of
from node.plugins import registry
from node.service import NodeService

_GB = 1e9


async def host_checks(node: NodeService) -> Diagnosis:
    """Return a diagnosis of this host alone: services, clock, disk, tools, rights, limits.

    :raises DatabaseUnavailable: the database does not answer for the limits.
    """
    status = await status_of(node)
    checks = [
        *_status_checks(status),
        load_check(status.load.one_minute, status.load.processors),
        await _rights_check(node),
        *tool_checks(node.capabilities),
        await _limits_check(node),
    ]
    return Diagnosis(node=node.card.name, checks=tuple(checks))


def _status_checks(status: NodeStatus) -> Iterator[Check]:
    """Yield, for each part of the status, its warnings, or one check that all is well."""
    well = {
        "lead": _leads_in_words(status),
        "planning": "what is due to be planned cannot be read"
        if status.planning is None
        else f"tasks that are due to be planned: {status.planning.due_tasks}",
        "database": f"Postgres {status.database.server_version} answers in "
        f"{status.database.answer_ms or 0:g} ms",
        "schema": f"the database has schema version {status.database.schema_version}, as this "
        "program",
        "disk": f"{status.disk.free_bytes / _GB:.3g} GB are free in {status.disk.directory}",
        "clock": "the clock is synchronised"
        if status.clock.synchronised
        else "the kernel does not tell whether the clock is synchronised",
        "nodes": f"nodes that are known here, and all answer: {status.peers}"
        if status.peers
        else "no other node is known here yet: parley node add URL",
    }
    subjects = dict.fromkeys([*well, *(each.subject for each in status.attention)])
    for subject in subjects:
        wrong = [each for each in status.attention if each.subject == subject]
        if not wrong:
            yield passed_check(subject, well[subject])
        for each in wrong:
            weak = subject in {"clock", "node"}
            state = CheckState.WARNING if weak else CheckState.FAULT
            yield Check(subject=subject, state=state, what=each.what, command=each.command)


def _leads_in_words(status: NodeStatus) -> str:
    if status.leads is None:
        return "whether a lead plans cannot be read"
    if not status.leads:
        return "no lead is there, and no task that would need one"
    count = len(status.leads)
    leads = "1 lead was" if count == 1 else f"{count} leads were"
    return f"{leads} heard lately, the last {status.leads[0].owner}"


async def _rights_check(node: NodeService) -> Check:
    """Return whether tools can be started here, and what the system does not keep from them."""
    try:
        rights = await node.tool_runner.rights()
    except HostError as error:
        return Check(
            subject="rights",
            state=CheckState.FAULT,
            what=f"no tool can run: {error.detail}",
            command="systemctl status parley-tools.socket",
        )
    weaker = rights.weaknesses(os.geteuid())
    if weaker:
        return Check(
            subject="rights",
            state=CheckState.WARNING,
            what=f"tools run as {rights.account}, but {'; '.join(weaker)}",
            cause="the node was not started by its units",
        )
    return passed_check("rights", f"tools run as {rights.account}, and reach nothing of this host")


def tool_checks(capabilities: Capabilities) -> list[Check]:
    """Check for which tests this host has a tool that may run."""
    usable, checks = [], []
    for name, test in sorted(capabilities.tests.items()):
        spec = test.spec_model.model_validate(test.example)
        tools = registry.tools_for(name)
        refusals = [capabilities.refusal(tool, spec) for tool in tools]
        if None in refusals:
            usable.append(name)
        elif tools:
            checks.append(_unusable_check(name, str(refusals[0])))
    listed = ", ".join(usable) or "no test"
    return [passed_check("tools", f"this host has tools for {listed}"), *checks]


def _unusable_check(test: str, refusal: str) -> Check:
    """Return the check of a test that no tool measures here."""
    what, _, remedy = refusal.partition("; ")
    return Check(
        subject="tools",
        state=CheckState.WARNING,
        what=f"{test} cannot be measured here: {what}",
        command=remedy or "parley tool list",
    )


async def _limits_check(node: NodeService) -> Check:
    """Check whether the owner's limits could be read, and whether they refuse open tasks."""
    shown = await node.limits.for_people()
    if shown.fault is not None:
        file = shown.file or "/etc/parley/limits.toml"
        return Check(
            subject="limits",
            state=CheckState.FAULT,
            what=f"the file of limits was not taken: {shown.fault}",
            command=f"parley limits check {file}",
        )
    if shown.refused_tasks:
        return Check(
            subject="limits",
            state=CheckState.WARNING,
            what=f"the limits refuse {shown.refused_tasks} open tasks of other nodes",
            command="parley task list --state active",
        )
    return passed_check("limits", f"in force: {shown.file or 'the default'}")
