"""Tasks of a mesh as a node would store them, without a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

from node.mesh.document import MeshDocument, parse
from node.mesh.expansion import MeasurementPair, MeshInventory, expand, members_of
from node.mesh.terms import MeshEntryTerms, terms_of
from node.model import times
from node.model.errors import InvalidDocument
from node.model.scheduling import default_slip
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.meshes import MeshTask
from node.model.wire.tasks import TaskDocument
from node.plugins.registry import tests, tools

NOW = times.parse_instant("2026-12-01T00:00:00Z")
_SPACE = UUID(int=7)
SCHEMAS = {name: test.spec_model.model_json_schema(by_alias=True) for name, test in tests().items()}

MESH = """
name = "lab"

[groups]
all = ["a", "b", "c"]

[tests.fill]
type = "throughput"
spec = { duration = "PT20S" }
priority = 3

[schedules.hourly]
repeat = "PT1H"
slip = "PT50M"

[[measure]]
shape = "full-mesh"
members = "all"
test = "fill"
schedule = "hourly"
"""


def a_fleet(*names: str, **changes: Any) -> MeshInventory:
    """Return an inventory of nodes, tests, tools and campaigns."""
    fields: dict[str, Any] = {
        "nodes": dict.fromkeys(names or ("a", "b", "c"), 8),
        "tests": SCHEMAS,
        "tools": {name: tool.tests for name, tool in tools().items()},
        "campaigns": frozenset({"default", "ops"}),
    }
    return MeshInventory(**(fields | changes))


def a_mesh(text: str = MESH) -> MeshDocument:
    """Parse a TOML file; raise :class:`InvalidDocument` with all faults of its fields."""
    reading = parse(text, toml=True)
    if reading.faults or reading.document is None:
        raise InvalidDocument(list(reading.faults))
    return reading.document


def pairs_of(document: MeshDocument) -> Mapping[str, MeasurementPair]:
    """Return all tasks of a file whose groups are lists."""
    return expand(document, members_of(document, MeshInventory({}))).pairs


def all_terms(document: MeshDocument) -> list[MeshEntryTerms]:
    """Return the terms of each entry."""
    return list(terms_of(document, SCHEMAS))


def kept(document: Mapping[str, Any], created_at: int = NOW, **changes: Any) -> MeshTask:
    """Return a posted task as a node stores it: with all defaults, and moments as instants."""
    task = TaskDocument.model_validate(document, context=FROM_OUTSIDE)
    test = tests()[task.test.type]
    spec = test.spec_model.model_validate(task.test.spec, context=FROM_OUTSIDE)
    spec = test.with_participants(spec, task.named_participants)
    schedule = task.schedule.at(created_at, task.after)
    tool = next(tool for tool in tools().values() if test.name in tool.tests)
    fields: dict[str, Any] = {
        "id": uuid5(_SPACE, f"{task.reference['key']} {created_at}"),
        "key": task.reference["key"],
        "state": "active",
        "revision": 1,
        "test": test.name,
        "spec": spec.model_dump(mode="json", by_alias=True),
        "tools": task.tools,
        "schedule": schedule.model_copy(update={"slip": default_slip(schedule)}).times,
        "after": task.after,
        "priority": task.priority,
        "campaign": task.campaign or "default",
        "reference": task.reference,
        "scheduling_class": test.scheduling_class(spec),
        "duration": tool.duration(spec),
        "created_at": created_at,
        "participants": tuple(name or "a" for name in test.participants(spec)),
    }
    return MeshTask(**(fields | changes))


def everything(document: MeshDocument, created_at: int = NOW) -> list[MeshTask]:
    """Return all tasks of a file as a node would store them."""
    terms = all_terms(document)
    return [
        kept(terms[pair.measure].document(key, pair.source, pair.dest), created_at)
        for key, pair in pairs_of(document).items()
    ]
