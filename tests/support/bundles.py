"""Bundles for tests: exported at a lead, and changed by somebody who must not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node.model.errors import InvalidDocument
from node.model.wire.bundles import MEDIA_TYPE, VERSION
from node.results.bundles.verification import (
    ConfirmedKeys,
    Outcome,
    Verification,
    check_bundle,
    parse_bundle,
)
from node.service import NodeService
from node.trust.keys import NodeKey
from node.trust.run_statements import SignedRun
from node.trust.statements import StatementKind, digests, sign_statement

Bundle = dict[str, Any]


async def exported(node: NodeService, run: UUID) -> Bundle:
    """Return the bundle of a run as somebody reads it from its file."""
    return parse_bundle(await node.bundles.export(run, lambda decision: decision))


def keys_of(bundle: Bundle) -> ConfirmedKeys:
    """Vouch for the keys that are in a bundle, as of its nodes' owners."""
    nodes = (bundle["made"], *bundle["participants"])
    return ConfirmedKeys({each["name"]: each["node"] for each in nodes})


def check(bundle: Bundle, keys: ConfirmedKeys) -> Verification:
    """Check a bundle as a file."""
    return check_bundle(parse_bundle(json.dumps(bundle).encode()), keys)


def is_found(text: bytes, keys: ConfirmedKeys) -> bool:
    """Return whether a check shows that a file is not as it was exported."""
    try:
        return check_bundle(parse_bundle(text), keys).outcome is Outcome.CHANGED
    except InvalidDocument:
        return True


def changed(bundle: Bundle, change: Callable[[Bundle], object]) -> Bundle:
    """Return a copy of a bundle after a change."""
    other = copy.deepcopy(bundle)
    change(other)
    return other


def signed_again(bundle: Bundle, key: NodeKey) -> Bundle:
    """Sign a bundle with a lead's key, as a lead does that has changed it."""
    members = {name: value for name, value in bundle.items() if name != "signature"}
    claims = {"run": bundle["run"]["id"], "sha256": digests(members)}
    return bundle | {"signature": sign_statement(key, StatementKind.BUNDLE, claims)}


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path to each value in a document that has no members, and to each empty one."""
    steps: Any = ()
    if isinstance(value, dict):
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    children = [leaf for step, inner in steps for leaf in leaves(inner, (*path, step))]
    yield from children or [path]


def put(document: Any, path: tuple[str | int, ...], value: Any) -> None:
    """Replace the value at a path."""
    for step in path[:-1]:
        document = document[step]
    document[path[-1]] = value


def at(document: Any, path: tuple[str | int, ...]) -> Any:
    """Return the value at a path."""
    for step in path:
        document = document[step]
    return document


LEAD, OTHER = (NodeKey(Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in (1, 2))
"""The keys of the nodes of :func:`invented`."""

_AT = "2026-12-01T00:00:00Z"


def invented() -> Bundle:
    """Return the bundle of a run with two participants and an interval that nobody measured."""
    run = _invented_run()
    facts = SignedRun(
        run=run["id"],
        task=str(UUID(int=2)),
        revision=1,
        lead=LEAD.identity,
        test=run["test"],
        tool=run["tool"],
        starts_at=run["starts_at"],
        ends_at=run["ends_at"],
        spec=run["spec"],
        participants=[[LEAD.identity, None], [OTHER.identity, "interface:eth1"]],
    )
    values = {"result": {"loss": 0.25, "series": [1, 2.5]}, "reason": None}
    part = values | {
        "started_at": _AT,
        "finished_at": None,
        "command": ["stamp", "-ü"],
        "output": "0 received\n",
        "circumstances": {"clock": {"synchronised": True}, "neighbours": []},
    }
    parts, shares = [], []
    for place, key in enumerate((LEAD, OTHER)):
        claims = facts.claims(place, part, 0)
        statement = sign_statement(key, StatementKind.PART, claims)
        parts.append({"participant": place, **part, "signature": statement})
        claims = facts.claims(place, values, 0, 7)
        statement = sign_statement(key, StatementKind.INTERVAL, claims)
        shares.append({"participant": place, **values, "signature": statement})
    interval = {"number": 7, "starts_at": _AT, "ends_at": _AT, "shares": shares}
    return signed_again(
        _invented_frame(run)
        | {"parts": parts, "intervals": [interval | values | {"summary": "25 % lost"}]},
        LEAD,
    )


def _invented_run() -> Bundle:
    return {
        "id": str(UUID(int=1)),
        "test": "latencybg",
        "tool": "stampbg",
        "spec": {"source": "a", "dest": "b", "rate": 1e-7},
        "scheduling_class": "background-multi",
        "priority": 3,
        "slot": _AT,
        "attempt": 1,
        "starts_at": _AT,
        "ends_at": "2026-12-02T00:00:00Z",
        "finished_at": None,
        "displaced_by": None,
    }


def _invented_frame(run: Bundle) -> Bundle:
    """Return everything but what participants sign."""
    made = {"at": _AT, "name": "a", "node": LEAD.identity, "version": "1", "test_plugin": "p 1"}
    task = {
        "id": str(UUID(int=2)),
        "revision": 1,
        "tools": ["stampbg"],
        "schedule": {"repeat": None},
        "duration": "P1D",
        "campaign": "ops",
        "reference": [4711],
        "requester": None,
        "created_at": _AT,
        "parent": None,
    }
    metric = {"name": "loss", "value": 0.25, "unit": "1", "labels": {"direction": "there"}}
    outcome = {
        "state": "finished",
        "reason": None,
        "result": {"loss": 0.25},
        "summary": "25 % lost",
        "verdict": "suspicious",
        "verdict_reasons": ["a was late"],
        "metrics": [metric],
    }
    decision = {
        "id": 1,
        "task": task["id"],
        "decided_at": _AT,
        "first_at": _AT,
        "times": 1,
        "outcome": "placed",
        "sentence": "1 of 1 runs placed",
        "asked": 1,
        "placed": 1,
        "first_slot": _AT,
        "last_slot": _AT,
        "trace": {"windows": [[1, 2]]},
    }
    a = {"name": "a", "node": LEAD.identity, "address": "192.0.2.1", "context": None}
    b = {"name": "b", "node": OTHER.identity, "address": "192.0.2.2", "context": "interface:eth1"}
    return {
        "type": MEDIA_TYPE,
        "version": VERSION,
        "about": ["how to check it"],
        "made": made,
        "task": task,
        "run": run,
        "participants": [a, b],
        "decisions": [decision],
        "outcome": outcome,
        "missing": ["nothing"],
    }
