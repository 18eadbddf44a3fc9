"""Replays of recorded results: the same outcome comes out of what a bundle has."""

from __future__ import annotations

import json
from functools import cache
from typing import Any
from uuid import UUID

import pytest

from node.execution.catalog import Capabilities
from node.execution.merging import conclude
from node.model.canonical import canonical
from node.model.errors import InvalidDocument, ToolOutputError
from node.model.times import format_instant
from node.model.wire.tasks import Participant
from node.plugins import registry
from node.results.bundles.replay import ReplayedRun, _outcome, differences_of
from node.store.runs import KeptPart
from tests.golden.recorded import TOOLS, cases, output
from tests.support.circumstances import told
from tests.unit.plugins.parts import STARTS, context

NAMES = ("a.example", "b.example")
RECORDED = [
    (test, tool.name, case)
    for tool in registry.tools().values()
    if (TOOLS / tool.name).is_dir()
    for test in tool.tests
    for case in cases(tool.name)
]


@cache
def capabilities() -> Capabilities:
    """Return the installed tests."""
    return Capabilities()


def part(test: str, tool: str, case: str, participant: int) -> KeptPart:
    """Return the part that a participant makes of a recorded output, or why it makes none."""
    result, reason = None, None
    try:
        read = registry.tools()[tool].read(context(test, participant), output(tool, case))
        result = dict(read)
    except ToolOutputError as error:
        reason = error.detail
    finished_at = STARTS + 1_000_000
    return KeptPart(
        participant, NAMES[participant], result, reason, STARTS, finished_at, circumstances=told()
    )


def bundled(test: str, parts: list[KeptPart]) -> dict[str, Any]:
    """Return what a lead exports of a run of these parts; members are in another order."""
    known = registry.tests()[test]
    spec = context(test).spec
    participants = tuple(
        Participant(node="ed25519:", name=NAMES[place], url=None, address=f"192.0.2.{place + 1}")
        for place in range(len(parts))
    )
    run = ReplayedRun(
        UUID(int=1), test, spec.model_dump(mode="json", exclude_unset=True), STARTS, participants
    )
    assert known.name == test
    bundle = {
        "run": {
            "id": str(run.id),
            "test": test,
            "spec": run.spec,
            "starts_at": format_instant(STARTS),
        },
        "participants": [
            {"name": each.name, "node": each.node, "address": each.address, "context": None}
            for each in participants
        ],
        "parts": [
            {
                "participant": each.participant,
                "result": each.result,
                "reason": each.reason,
                "started_at": format_instant(STARTS),
                "finished_at": None,
                "circumstances": each.circumstances,
            }
            for each in parts
        ],
        "intervals": [],
        "outcome": _outcome(capabilities(), test, conclude(capabilities(), run, parts, [])),
    }
    return dict(json.loads(canonical(bundle)))


@pytest.mark.parametrize(("test", "tool", "case"), RECORDED)
@pytest.mark.mostly_nightly
def test_a_recorded_result_comes_out_again(test: str, tool: str, case: str) -> None:
    """Merging a part from a bundle gives what merging it gave, whatever the tool printed."""
    count = len(registry.tests()[test].participants(context(test).spec))
    parts = [part(test, tool, case, place) for place in range(count)]
    assert differences_of(bundled(test, parts), capabilities()) == []


def test_recorded_results_are_many() -> None:
    """Recordings of most tools are replayed, and most of them are results."""
    assert len(RECORDED) > 80
    assert len({tool for _, tool, _ in RECORDED}) > 10


def test_a_changed_figure_is_found() -> None:
    """A lead that reports another figure than its parts give is found, with both values."""
    case = next(case for case in cases("ping") if part("rtt", "ping", case, 0).result)
    bundle = bundled("rtt", [part("rtt", "ping", case, 0)])
    figure = bundle["outcome"]["metrics"][0]
    figure["value"] += 1
    [difference] = differences_of(bundle, capabilities())
    assert difference.field == "/outcome/metrics/0/value"
    assert difference.bundle == difference.replay + 1


def test_a_test_that_is_not_installed_is_named() -> None:
    """A bundle of a test that is not installed here is refused, not repeated otherwise."""
    bundle = bundled("rtt", [part("rtt", "ping", cases("ping")[0], 0)])
    bundle["run"]["test"] = "wakeup"
    with pytest.raises(InvalidDocument, match="there is no test 'wakeup'"):
        differences_of(bundle, capabilities())
