"""The route that reads a mesh file, and compares it with the tasks that there are.

``parley mesh plan`` does the same for files on a user's host, where they may be larger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from uuid import UUID

from aiohttp import web

from node.api import requests, responses
from node.api.meshes import task_of
from node.api.nodes import schema_of
from node.api.plans import plan_documents
from node.api.routing import NODE, PRINCIPAL, TRIAL, Route
from node.mesh.comparison import Comparison
from node.mesh.document import MatchingGroup, MeshDocument, PoolGroup, parse
from node.mesh.expansion import MeshInventory
from node.mesh.findings import Finding, line_of
from node.mesh.lint import FINDINGS_MAX, finding_of, findings_elsewhere, lint
from node.mesh.sampling import first_keys
from node.mesh.starts import MeshTasks, planned_demand
from node.mesh.terms import MeshEntryTerms, idempotency_key, terms_of
from node.model import predicates
from node.model.errors import FieldFault, InvalidDocument, NotFound
from node.model.wire.meshes import (
    MeshCancellation,
    MeshCreation,
    MeshEdit,
    MeshFile,
    MeshFinding,
    MeshTask,
    MeshTrial,
)
from node.model.wire.plans import PLANS_MAX, Plan
from node.service import NodeService
from node.store import meshes

TASKS_MAX = 2000
"""Maximum number of tasks of a file; ``parley mesh`` takes more."""
_PAGE = 500
_LATER = UUID(int=0)


async def trial(request: web.Request) -> web.StreamResponse:
    """Return what is wrong with a mesh file, or else what it would create, edit and cancel."""
    request[TRIAL] = True
    node, file = request.app[NODE], requests.document(request, MeshFile)
    try:
        parsed = parse(file.text, toml=file.format == "toml")
    except InvalidDocument as error:
        return responses.document_response(_faulty_trial(file, map(finding_of, error.faults)))
    faults = [finding_of(fault) for fault in parsed.faults]
    if (document := parsed.document) is None:
        return responses.document_response(_faulty_trial(file, faults))
    fleet, unknown = await _inventory(node, document, parsed.unread)
    expansion, findings = await asyncio.to_thread(
        lint, document, fleet, node.clock.now(), TASKS_MAX
    )
    if faults:
        findings = [*findings_elsewhere(findings, parsed)]
    found = [*faults, *unknown, *findings]
    if any(finding.stops for finding in found):
        return responses.document_response(_faulty_trial(file, found, document.name))
    terms = terms_of(document, fleet.tests)
    existing = await _existing_tasks(node, document.name, request[PRINCIPAL].only)
    tasks = MeshTasks(document.name, expansion.pairs, expansion.pairs, terms, existing)
    terms, compared = await _with_starts(request, tasks)
    creations = sorted(_creations(compared, terms), key=lambda creation: creation.depth)
    answer = MeshTrial(
        name=document.name,
        findings=tuple(_finding_document(file, finding) for finding in found),
        create=tuple(creations),
        edit=tuple(
            MeshEdit(
                task=edit.task.id,
                key=edit.task.key,
                patch=edit.patch,
                differences=edit.differences,
            )
            for edit in compared.edit
        ),
        end=tuple(
            MeshCancellation(task=end.task.id, key=end.task.key, reason=end.reason)
            for end in compared.end
        ),
        unchanged=compared.unchanged,
        previewed=tuple(first_keys({each.key: each.pair for each in compared.create})),
    )
    return responses.document_response(answer)


def _faulty_trial(file: MeshFile, findings: Iterable[Finding], name: str = "") -> MeshTrial:
    return MeshTrial(
        name=name or None, findings=tuple(_finding_document(file, finding) for finding in findings)
    )


def _finding_document(file: MeshFile, finding: Finding) -> MeshFinding:
    line = line_of(file.text, finding.pointer) if file.format == "toml" else None
    return MeshFinding(
        cause=finding.cause.value,
        pointer=finding.pointer,
        line=line,
        detail=finding.detail,
        remedy=finding.remedy,
        stops=finding.stops,
    )


async def _inventory(
    node: NodeService, document: MeshDocument, unread: frozenset[str]
) -> tuple[MeshInventory, list[Finding]]:
    """Return what this node knows, and findings for groups that it cannot resolve."""
    await node.directory.refresh()
    groups: dict[str, tuple[str, ...]] = {}
    unknown: list[Finding] = []
    for name, group in document.groups.items():
        if len(unknown) >= FINDINGS_MAX:
            break
        try:
            if isinstance(group, PoolGroup):
                pool = await node.pools.find(group.pool)
                groups[name] = node.pools.membership(pool.match).nodes
            elif isinstance(group, MatchingGroup):
                met = predicates.parse(group.match, f"/groups/{name}/match").met_by
                groups[name] = tuple(n.name for n in node.directory.all if met(n.facts))
        except NotFound as error:
            unknown.append(finding_of(FieldFault(f"/groups/{name}/pool", error.detail)))
        except InvalidDocument as error:
            unknown += map(finding_of, error.faults)
    unresolved = {
        name
        for name, group in document.groups.items()
        if isinstance(group, MatchingGroup | PoolGroup) and name not in groups
    }
    fleet = MeshInventory(
        nodes={known.name: known.lanes for known in node.directory.all},
        groups=groups,
        unresolved=unread | unresolved,
        tests={name: schema_of(test) for name, test in node.capabilities.tests.items()},
        tools={name: tool.tests for name, tool in node.capabilities.tools.items()},
        campaigns=frozenset(each.settings.name for each in await node.campaigns.all()),
    )
    return fleet, unknown


async def _existing_tasks(node: NodeService, mesh: str, only: str | None) -> list[MeshTask]:
    found: list[MeshTask] = []
    after = None
    async with node.database.connection() as connection:
        while True:
            rows = await meshes.tasks(connection, mesh, after, _PAGE, only)
            found += map(task_of, rows)
            if len(rows) < _PAGE:
                return found
            after = found[-1].key, found[-1].created_at, found[-1].id


async def _with_starts(
    request: web.Request, tasks: MeshTasks
) -> tuple[tuple[MeshEntryTerms, ...], Comparison]:
    """Decide when the tasks to create start; those are previewed of which it must be known."""
    terms, compared = tasks.compared()
    keys = tasks.keys_to_preview(compared)[:PLANS_MAX]
    pairs = [tasks.pairs[key] for key in keys]
    documents = [
        {**terms[pair.measure].document(key, pair.source, pair.dest), "runs": 1}
        for key, pair in zip(keys, pairs, strict=True)
    ]
    demands = {
        pair.measure: planned_demand(plan, pair)
        for pair, plan in zip(pairs, await plan_documents(request, documents), strict=True)
        if isinstance(plan, Plan)  # its own preview tells why there is none
    }
    return await asyncio.to_thread(tasks.decided, compared, demands)


def _creations(compared: Comparison, terms: tuple[MeshEntryTerms, ...]) -> Iterator[MeshCreation]:
    """Yield the tasks to create; what follows a task without an id yet names its key."""
    for key, pair, predecessor in compared.create:
        entry = terms[pair.measure]
        followed = entry.followed_key(pair.source, pair.dest)
        present = None if followed is None else compared.present.get(followed)
        later = followed is not None and present is None
        document = entry.document(key, pair.source, pair.dest, _LATER if later else present)
        yield MeshCreation(
            key=key,
            depth=entry.depth,
            follows=followed if later else None,
            document={**document, "idempotency_key": idempotency_key(document, predecessor)},
        )


ROUTES = (
    Route(
        "POST",
        "/v1/meshes/trials",
        trial,
        "Read a mesh file, and compare it with the tasks that there are; nothing is changed",
        MeshFile,
        MeshTrial,
    ),
)
