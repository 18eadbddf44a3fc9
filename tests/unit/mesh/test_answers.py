"""Findings from the previews of some tasks of a mesh, and the documented meshes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from node.mesh.answers import TaskForecast, fault_in_mesh_file, forecast_findings, other_bookings
from node.mesh.findings import FindingKind
from node.mesh.lint import lint
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import FieldFault
from node.model.wire.plans import Occupancy, Outcome, ParticipantAnswer, Plan
from tests.unit.mesh.kept import NOW, a_fleet, a_mesh

REPOSITORY = Path(__file__).parents[3]
EXAMPLE = REPOSITORY / "deploy" / "mesh.toml"
MESHES = (REPOSITORY / "docs/reference/mesh-file.md").read_text()


def _answer(
    number: int, outcome: Outcome, *nos: str, measure: int = 0, **more: Any
) -> TaskForecast:
    participants = tuple(
        ParticipantAnswer(name=name, node=name, answer="refuses", reason="no iperf3")
        for name in nos
    )
    plan: dict[str, Any] = {
        "outcome": outcome,
        "sentence": "there is no time",
        "now": NOW,
        "test": "throughput",
        "tool": "iperf3",
        "scheduling_class": SchedulingClass.EXCLUSIVE,
        "duration": 20 * times.SECOND,
        "priority": 0,
        "asked": 1,
        "placed": 0,
        "starts": (),
        "drawn": False,
        "unplaced": (),
        "displaced": (),
        "displaced_count": 0,
        "participants": participants,
        "occupancy": (),
        "alternatives": (),
        "no_alternatives": (),
    }
    return TaskForecast(f"x/{number}", measure, Plan(**(plan | more)))


def test_no_pair_can_run_this() -> None:
    """A finding says how many of the previewed pairs are refused, and counts the reasons."""
    refused = Outcome.REFUSED
    answers = [_answer(1, refused, "b"), _answer(2, refused, "b"), _answer(3, refused, "c")]
    [finding] = forecast_findings(answers)
    assert (finding.cause, finding.pointer) == (FindingKind.REFUSED, "/measure/0")
    assert finding.detail == (
        "no pair can run this: all 3 previewed pairs are refused: b: no iperf3 (2 times); "
        "c: no iperf3"
    )
    [finding] = forecast_findings([*answers, _answer(4, Outcome.FOUND)])
    assert finding.detail.startswith("3 of 4 previewed pairs are refused: b: no iperf3")
    [finding] = forecast_findings([_answer(1, Outcome.NO_TIME, measure=2)])
    assert (finding.cause, finding.pointer) == (FindingKind.NO_TIME, "/measure/2")
    assert finding.detail == "the previewed pair is without free time: there is no time"
    assert forecast_findings([_answer(1, Outcome.FOUND), _answer(2, Outcome.PARTLY)]) == []


@pytest.mark.parametrize(
    ("pointer", "place"),
    [
        ("/test/spec/duration", "/tests/fill/spec/duration"),
        ("/tools/0", "/tests/fill/tools/0"),
        ("/schedule/repeat", "/schedules/hourly/repeat"),
        ("/schedule", "/schedules/hourly"),
        ("/campaign", "/measure/0"),
    ],
)
def test_a_fault_in_a_task_has_its_place_in_the_file(pointer: str, place: str) -> None:
    """A fault in a task is reported at the section of the file that it came from."""
    assert fault_in_mesh_file(a_mesh(), 0, FieldFault(pointer, "is wrong")).pointer == place


def test_what_others_have_booked() -> None:
    """The bookings of others on a node are the largest share of any preview."""

    def full(name: str, others: float) -> Occupancy:
        return Occupancy(name=name, added_s=0, before=0.9, after=0.9, others=others, hours=())

    answers = [
        _answer(1, Outcome.FOUND, occupancy=(full("a", 0.2), full("b", 0.1))),
        _answer(2, Outcome.FOUND, occupancy=(full("a", 0.3),)),
    ]
    assert other_bookings(answers) == {"a": 0.3, "b": 0.1}


@pytest.mark.nightly
def test_the_mesh_in_the_documentation_is_as_large_as_it_says() -> None:
    """The documented file of a full mesh expands to the 89,700 pairs of its figures."""
    [text] = re.findall(r"```toml\n(name = .*?)```", MESHES, re.DOTALL)
    document = a_mesh(text)
    nodes = [f"n{number}" for number in range(300)]
    expansion, findings = lint(document, a_fleet(*nodes, groups={"all": nodes}), NOW)
    assert (findings, len(expansion.pairs)) == ([], 89_700)


def test_the_example_is_sound() -> None:
    """The example file uses every feature and has no faults."""
    document = a_mesh(EXAMPLE.read_text())
    fleet = a_fleet(*"abcde", groups={"edge": ("d", "e"), "fast": ("b", "d")})
    expansion, findings = lint(document, fleet, NOW)
    assert findings == []
    assert {shape.shape for shape in document.measure} == {"full-mesh", "star", "pairs", "each"}
    assert len(expansion.pairs) == 20 + 4 + 7 + 3 + 20 + 7 + 3
