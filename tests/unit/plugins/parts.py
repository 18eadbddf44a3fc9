"""Part contexts and outputs for the tests of tools."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from node.plugins import registry
from node.plugins.contracts import Output, PartContext, Party

STARTS = 1_800_000_000_000_000
PORT = 5301


def spec(test: str, **fields: Any) -> Any:
    """Return a minimal spec of a test; to b.example, if it has a dest."""
    known = registry.tests()[test]
    model = known.spec_model
    least = {
        name: known.example[name] for name, it in model.model_fields.items() if it.is_required()
    }
    if "dest" in model.model_fields:
        least["dest"] = "b.example"
    return model.model_validate(least | fields)


def context(test: str, participant: int = 0, **fields: Any) -> PartContext:
    """Return a participant's part of a run of a test, between 192.0.2.1 and 192.0.2.2."""
    task_spec = spec(test, **fields)
    return PartContext(
        spec=task_spec,
        participant=participant,
        parties=(Party("a.example", "192.0.2.1"), Party("b.example", "192.0.2.2", {"port": PORT})),
        starts=STARTS,
        ends=STARTS + registry.tools_for(test)[0].duration(task_spec),
        addresses={"b.example": "192.0.2.2"},
    )


def with_ports(part: PartContext, *ports: int) -> PartContext:
    """Return the part with a port assigned to each participant."""
    parties = [replace(it, data={"port": at}) for it, at in zip(part.parties, ports, strict=True)]
    return replace(part, parties=parties)


def printed(document: object, exit_code: int = 0) -> Output:
    """Return the output of a program that printed a JSON document."""
    return Output(exit_code, json.dumps(document).encode(), b"")
