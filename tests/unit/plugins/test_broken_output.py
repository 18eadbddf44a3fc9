"""Recorded outputs that were cut, lost lines, or have other figures: none that cannot be is shown.

Each recorded output is read as it is, and then damaged in the ways that people report: at one place
or several, by what real programs print when something is wrong.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.errors import ToolOutputError
from node.plugins import registry
from node.plugins.contracts import Output, Part, PartContext
from tests.golden.recorded import TOOLS, cases, output
from tests.support.impossible import impossible
from tests.unit.plugins.test_lying import part_of

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
LIES = [
    b"-1", b"-0.5", b"0", b"nan", b"-nan", b"null", b"NaN", b"inf", b"1e308", b"604800000", b"137",
    b"18446744073709551615", b"4294967295", b"0,045", b"9" * 30, b"9" * 5000, b"x", b"",
]  # fmt: skip
STRAY = [
    b"warning: JSON data length overflow\n", b"iperf3: error - unable to send: Broken pipe\n",
    b"WARNING: clock skew\n", b"\xff\xfe\n", b"{}\n", b"]\n", b"\x1e", b"\n\n", b"-1\n",
]  # fmt: skip


def damaged(data: st.DataObject, text: bytes) -> bytes:
    """Return an output with one to three damages."""
    for _ in range(data.draw(st.integers(1, 3))):
        kind = data.draw(st.sampled_from(["number", "numbers", "line", "cut", "stray", "double"]))
        at = data.draw(st.integers(0, len(text)))
        numbers = list(NUMBER.finditer(text))
        if kind.startswith("number") and numbers:
            number = data.draw(st.sampled_from(numbers))
            lie = data.draw(st.sampled_from(LIES) | st.integers().map(lambda it: b"%d" % it))
            if kind == "number":
                text = text[: number.start()] + lie + text[number.end() :]
            else:  # wherever it stands
                text = text.replace(number[0], lie)
        elif kind == "cut":
            text = text[:at]
        elif kind == "stray":
            text = text[:at] + data.draw(st.sampled_from(STRAY)) + text[at:]
        else:
            lines = text.splitlines(keepends=True)
            which = data.draw(st.integers(0, max(0, len(lines) - 1)))
            lines[which : which + 1] = lines[which : which + 1] * (2 if kind == "double" else 0)
            text = b"".join(lines)
    return text


def show(part: PartContext, test: str, result: Any, reason: str | None) -> None:
    """Merge a part and show it as lists and metrics do."""
    shown = registry.tests()[test]
    merged = shown.merge(part.spec, [Part(part.participant, "a", result, reason)])
    json.dumps(result, allow_nan=False)
    if merged.result is not None:
        assert list(impossible(merged.result)) == []
        assert shown.summary(merged.result)
        figures = shown.metrics(merged.result)
        assert all(math.isfinite(figure.value) for figure in figures)
        assert all(0 <= figure.value <= 1 for figure in figures if figure.name == "loss")


RECORDED = [
    (tool, test, case, part)
    for tool in sorted(path.name for path in TOOLS.iterdir())
    if tool in registry.tools()
    for case in cases(tool)
    if (part := part_of(tool, case)) is not None
    for test in registry.tools()[tool].tests
    if isinstance(part.spec, registry.tests()[test].spec_model)
]
BY_TOOL = {tool: [each for each in RECORDED if each[0] == tool] for tool, *_ in RECORDED}


@pytest.mark.parametrize("tool", BY_TOOL)
@given(st.data())
@pytest.mark.mostly_nightly
def test_no_figure_that_cannot_be_is_shown(tool: str, data: st.DataObject) -> None:
    """A damaged output is refused with a sentence, or what is right of it is kept."""
    _, test, case, part = data.draw(st.sampled_from(BY_TOOL[tool]))
    real = output(tool, case)
    stderr = data.draw(st.sampled_from([b"", real.stderr]))
    printed = Output(
        data.draw(st.sampled_from([0, 1, real.exit_code])),
        damaged(data, real.stdout),
        damaged(data, stderr) if tool in ("curl", "fping") else stderr,
        data.draw(st.sampled_from(["itself", "end"])),
    )
    result: dict[str, Any] | None = None
    reason = None
    try:
        result = registry.tools()[tool].read(part, printed)
    except ToolOutputError as refused:
        result, reason = refused.result, refused.detail
    show(part, test, result, reason)


def test_every_tool_is_damaged() -> None:
    """Every tool with recordings is tried."""
    assert set(BY_TOOL) >= {
        "connect", "curl", "dnspython", "fetch", "fping", "handshake", "iperf3", "irtt", "mtr",
        "nuttcp", "ping", "ping-df", "scamper", "tracepath", "traceroute",
    }  # fmt: skip
