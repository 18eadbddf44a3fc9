"""Real outputs in which one time is replaced by a negative, infinite or textual one."""

from __future__ import annotations

import contextlib
import re
from itertools import product
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.plugins import registry
from node.plugins.contracts import Output, PartContext
from tests.golden.recorded import TOOLS, cases, output
from tests.unit.plugins.parts import context

TIME = re.compile(
    rb"(?<!, time )(?<![\d.])\d+(?:\.\d+)?(?= ?ms\b)"  # but the time that all of ping took
    rb"|(?<=\"rtt\":)[\d.]+"
    rb"|(?<=^p \d )\d+",
    re.MULTILINE,
)
"""The times in the output of programs."""

LIES = [b"-1", b"-0.5", b"nan", b"-nan", b"inf", b"1e999", b"9" * 400]
SPECS: tuple[dict[str, Any], ...] = (
    {},
    {"count": 10},
    {"count": 20},
    {"count": 3},
    {"protocol": "tcp"},
    {"protocol": "icmp"},
    {"protocol": "udp"},
    {"names": True},
    {"as_numbers": True},
    {"hops_max": 5},
)
"""The tests that a recorded output can belong to; the first that fits is used."""


def part_of(tool: str, case: str) -> PartContext | None:
    """Return the part whose result a recorded output is, if there is one."""
    for test, fields, participant in product(registry.tools()[tool].tests, SPECS, (0, 1)):
        with contextlib.suppress(ToolOutputError, ValueError):
            part = context(test, participant, **fields)
            registry.tools()[tool].read(part, output(tool, case))
            return part
    return None


def refused(tool: str, part: PartContext, printed: Output, real: Output) -> bool:
    """Return whether the output is refused, or the result has no such time, or names it."""
    try:
        result = registry.tools()[tool].read(part, printed)
    except ToolOutputError:
        return True
    return "notes" in result or result == registry.tools()[tool].read(part, real)


RECORDED = {
    f"{tool}-{case}": (tool, case, part)
    for tool in sorted(path.name for path in TOOLS.iterdir())
    for case in cases(tool)
    if TIME.search(output(tool, case).stdout) and (part := part_of(tool, case)) is not None
}


@pytest.mark.parametrize(("tool", "case", "part"), RECORDED.values(), ids=RECORDED)
def test_a_time_that_is_a_lie_is_refused_or_named(tool: str, case: str, part: PartContext) -> None:
    """Whichever of its times is replaced, the first or the last, it is not believed."""
    real = output(tool, case)
    times = list(TIME.finditer(real.stdout))
    for time, lie in product((times[0], times[-1]), LIES):
        text = real.stdout[: time.start()] + lie + real.stdout[time.end() :]
        printed = Output(real.exit_code, text, real.stderr, real.ended_by)
        assert refused(tool, part, printed, real), text[max(0, time.start() - 60) :][:80]


def test_every_tool_that_prints_times_is_tried() -> None:
    """Every tool that prints times has a recorded output that is tried here."""
    assert {tool for tool, _, _ in RECORDED.values()} >= {
        "fping", "mtr", "ping", "scamper", "tracepath", "traceroute",
    }  # fmt: skip
