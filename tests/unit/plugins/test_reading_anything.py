"""Whatever a program prints, reading it ends in a result or in one kind of error."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from node.model.errors import ToolOutputError
from node.plugins import registry
from node.plugins.contracts import Output, Part
from node.plugins.reading import BYTES_MAX
from tests.golden.recorded import cases, output
from tests.unit.plugins.parts import context

PAIRS = [(test, name) for name, tool in sorted(registry.tools().items()) for test in tool.tests]
ends = st.builds(
    lambda pair, place: (*pair, place), st.sampled_from(PAIRS), st.sampled_from([0, 1])
)
exits = st.sampled_from([0, 1, 2, -15])
endings = st.sampled_from(["itself", "end"])
numbers = st.integers() | st.floats()
scalars = st.none() | st.booleans() | numbers | st.text(max_size=5)
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["end", "sent", "clock", "error", "x"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


def read_or_refuse(end: tuple[str, str, int], printed: Output) -> None:
    """Read an output; a result must be JSON, and fit for merging, summing up and series."""
    name, tool_name, participant = end
    part = context(name, participant)
    test, tool = registry.tests()[name], registry.tools()[tool_name]
    try:
        result = tool.read(part, printed)
    except ToolOutputError:
        return
    json.dumps(result, allow_nan=False)
    merged = test.merge(part.spec, [Part(0, "a", result), Part(1, "b", result)])
    if merged.result is not None:
        assert test.summary(merged.result)
        assert all(math.isfinite(metric.value) for metric in test.metrics(merged.result))


@given(ends, st.binary(max_size=300), st.binary(max_size=50), exits, endings)
@example(("throughput", "iperf3", 0), b"[" * 100_000, b"", 0, "itself")
@example(("latency", "stamp", 0), b'{"sent":' + b"9" * 5000 + b"}", b"", 0, "itself")
@example(("throughput", "iperf3", 0), b'{"end":{"sum_sent":{"bytes":NaN}}}', b"", 0, "itself")
def test_any_bytes(
    end: tuple[str, str, int], stdout: bytes, stderr: bytes, exit_code: int, ended_by: str
) -> None:
    """Arbitrary bytes are refused with a sentence or read, never anything else."""
    read_or_refuse(end, Output(exit_code, stdout, stderr, ended_by))


@given(ends, documents, exits, endings)
def test_any_document(
    end: tuple[str, str, int], document: object, exit_code: int, ended_by: str
) -> None:
    """Arbitrary JSON is refused with a sentence or read, never anything else."""
    read_or_refuse(end, Output(exit_code, json.dumps(document).encode(), b"", ended_by))


@given(st.data())
def test_any_change_of_a_real_ping(data: st.DataObject) -> None:
    """A real ping's output with lines lost, doubled or changed is refused or read."""
    real = output("ping", data.draw(st.sampled_from(cases("ping"))))
    lines = real.stdout.decode().splitlines()
    kept = data.draw(st.lists(st.sampled_from(lines or [""]), max_size=40))
    digit = data.draw(st.sampled_from("0123456789-.n"))
    text = "\n".join(kept).replace(data.draw(st.sampled_from("0123456789")), digit)
    read_or_refuse(
        ("rtt", "ping", 0), Output(real.exit_code, text.encode(), real.stderr, real.ended_by)
    )


@given(st.data())
def test_any_change_of_a_real_iperf3(data: st.DataObject) -> None:
    """A real iperf3's document with any one value replaced is refused or read."""
    case = data.draw(st.sampled_from(["tcp-client", "udp-server", "tcp-streams-reverse-server"]))
    document = json.loads(output("iperf3", case).stdout)
    change(data, document)
    end = ("throughput", "iperf3", data.draw(st.sampled_from([0, 1])))
    read_or_refuse(end, Output(0, json.dumps(document).encode(), b""))


LINES = [
    ("rtt", "fping"),
    ("trace", "mtr"),
    ("trace", "scamper"),
    ("trace", "traceroute"),
    ("trace", "tracepath"),
    ("mtu", "tracepath"),
    ("mtu", "ping-df"),
]


@given(st.data())
def test_any_change_of_a_real_path(data: st.DataObject) -> None:
    """A real output with lines lost, doubled or changed is refused or read."""
    test, tool = data.draw(st.sampled_from(LINES))
    real = output(tool, data.draw(st.sampled_from(cases(tool))))
    first, *lines = real.stdout.decode().splitlines() or [""]
    kept = data.draw(st.lists(st.sampled_from(lines or [""]), max_size=20))
    whole = data.draw(st.booleans())
    old, new = data.draw(st.sampled_from("0123456789. :")), data.draw(st.sampled_from("0129-.n!:"))
    text = "\n".join([first, *(lines if whole else kept)])
    at = data.draw(st.integers(min_value=0, max_value=len(text)))
    changed = text[:at] + text[at:].replace(old, new, data.draw(st.integers(1, 3)))
    printed = Output(real.exit_code, changed.encode(), real.stderr, real.ended_by)
    read_or_refuse((test, tool, 0), printed)


def change(data: st.DataObject, document: Any) -> None:
    """Replace one value somewhere inside a document."""
    keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    key = data.draw(st.sampled_from(keys))
    if isinstance(document[key], dict | list) and document[key] and data.draw(st.booleans()):
        change(data, document[key])
    else:
        document[key] = data.draw(scalars)


@pytest.mark.parametrize(("test", "tool"), PAIRS)
def test_floods_are_refused(test: str, tool: str) -> None:
    """More output than any tool has is not even parsed."""
    flood = Output(1 if test == "idle" else 0, b" " * (BYTES_MAX + 1), b"")
    with pytest.raises(ToolOutputError, match=r"too many to read|did not sleep"):
        registry.tools()[tool].read(context(test), flood)
