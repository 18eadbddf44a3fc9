"""Real outputs in which one time is a lie: below nothing, no number, or beyond all measure."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
"""The times in what programs print."""

LIES = [b"-1", b"-0.5", b"nan", b"-nan", b"inf", b"1e999", b"9" * 400]
SPECS = (
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
"""What recorded outputs may be read as; each is, as the first one that fits."""


def read(tool: str, printed: Output) -> Iterator[PartContext]:
    """The part of which this is a result, if there is one."""
    for test in registry.tools()[tool].tests:
        for fields in SPECS:
            for participant in (0, 1):
                try:
                    part = context(test, participant, **fields)
                    registry.tools()[tool].read(part, printed)
                except (ToolOutputError, ValueError):
                    continue
                yield part
                return


def refused(tool: str, part: PartContext, printed: Output) -> bool:
    """Whether this is read as no result."""
    try:
        registry.tools()[tool].read(part, printed)
    except ToolOutputError:
        return True
    return False


RECORDED = [
    (tool, case)
    for tool in sorted(path.name for path in TOOLS.iterdir())
    for case in cases(tool)
    if TIME.search(output(tool, case).stdout)
]


@pytest.mark.parametrize(("tool", "case"), RECORDED)
def test_a_time_that_is_a_lie_is_refused(tool: str, case: str) -> None:
    """Whichever time of a result is replaced, first or last, there is no result any more."""
    real = output(tool, case)
    for part in read(tool, real):
        times = list(TIME.finditer(real.stdout))
        for time in (times[0], times[-1]):
            for lie in LIES:
                text = real.stdout[: time.start()] + lie + real.stdout[time.end() :]
                printed = Output(real.exit_code, text, real.stderr, real.ended_by)
                assert refused(tool, part, printed), text[max(0, time.start() - 60) :][:80]
