"""Reading arbitrary output of a program ends in a result or in one kind of error."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from node.model.errors import ToolOutputError
from node.model.intervals import Interval
from node.plugins import registry
from node.plugins.contracts import Output, Part, StreamingTest, StreamingTool
from node.plugins.reading import BYTES_MAX
from tests.golden.recorded import cases, output
from tests.unit.plugins.parts import context
from tests.unit.plugins.records import (
    SPEC,
    clients_record,
    owamp_record,
    reading,
    reflector_record,
    sender_record,
    server_record,
    sleepers_record,
)

PAIRS = [(test, name) for name, tool in sorted(registry.tools().items()) for test in tool.tests]
ends = st.builds(
    lambda pair, place: (*pair, place), st.sampled_from(PAIRS), st.sampled_from([0, 1])
)
streams = ends.filter(lambda end: isinstance(registry.tests()[end[0]], StreamingTest))
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


def read_record_or_refuse(end: tuple[str, str, int], record: bytes) -> None:
    """Read a record of an interval; what comes of it must be fit for merging and adding up."""
    name, tool_name, participant = end
    part = context(name, participant, **SPEC)
    test, tool = registry.tests()[name], registry.tools()[tool_name]
    assert isinstance(test, StreamingTest)
    assert isinstance(tool, StreamingTool)
    try:
        interval = tool.read_interval(part, record)
    except ToolOutputError:
        return
    json.dumps(interval.result, allow_nan=False)
    assert interval.result is not None or interval.reason
    parts = [Part(at, "ab"[at], interval.result, interval.reason) for at in (0, 1)]
    merged = test.merge_interval(part.spec, parts)
    if merged.result is not None:
        assert test.interval_summary(merged.result)
        total = test.total(part.spec, [Interval(0, merged.result, merged.reason)] * 3)
        assert test.summary(total)
        assert all(math.isfinite(metric.value) for metric in test.metrics(total))


@given(streams, st.binary(max_size=300) | documents.map(lambda it: json.dumps(it).encode()))
@example(("latencybg", "stampbg", 0), b'{"sent":' + b"9" * 5000 + b"}")
@example(("interface", "procnet", 0), b"[" * 50_000)
def test_any_record(end: tuple[str, str, int], record: bytes) -> None:
    """Arbitrary bytes and JSON as a record are refused with a sentence or read."""
    read_record_or_refuse(end, record)


RECORDS = {
    "irtt": (clients_record, server_record),
    "powstream": (owamp_record, owamp_record),
    "procnet": (reading, reading),
    "sleepbg": (sleepers_record, sleepers_record),
    "stampbg": (sender_record, reflector_record),
}


@given(streams, st.data())
def test_any_change_of_a_record(end: tuple[str, str, int], data: st.DataObject) -> None:
    """A record with any one value replaced is refused or read."""
    document = copy.deepcopy(RECORDS[end[1]][end[2]]())
    change(data, document)
    read_record_or_refuse(end, json.dumps(document).encode())


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
    version = data.draw(st.sampled_from(["iperf3", "iperf3-3.18", "iperf3-3.22"]))
    document = json.loads(output(version, case).stdout)
    change(data, document)
    end = ("throughput", "iperf3", data.draw(st.sampled_from([0, 1])))
    read_or_refuse(end, Output(0, json.dumps(document).encode(), b""))


@given(st.data())
def test_any_change_of_a_real_curl(data: st.DataObject) -> None:
    """A real curl's report with any one value replaced or cut off is refused or read."""
    real = output("curl", data.draw(st.sampled_from(cases("curl"))))
    document = json.loads(real.stderr)
    change(data, document)
    report = json.dumps(document).encode()
    cut = data.draw(st.integers(1, len(report)) | st.just(len(report)))
    body = data.draw(st.binary(max_size=20) | st.just(real.stdout))
    read_or_refuse(("http", "curl", 0), Output(real.exit_code, body, report[:cut], real.ended_by))


@given(st.data())
def test_any_change_of_what_our_programs_print(data: st.DataObject) -> None:
    """Our own programs' output with any one value replaced is refused or read."""
    test, tool = data.draw(
        st.sampled_from(
            [("dns", "dnspython"), ("http", "fetch"), ("tcp", "connect"), ("tls", "handshake")]
        )
    )
    real = output(tool, data.draw(st.sampled_from(cases(tool))))
    document = json.loads(real.stdout)
    change(data, document)
    read_or_refuse((test, tool, 0), Output(0, json.dumps(document).encode(), b""))


ENDS = [
    (test, tool, case)
    for test, tool in (("latency", "irtt"), ("throughput", "nuttcp"))
    for case in cases(tool)
]


@given(st.data())
def test_any_change_of_a_real_flow(data: st.DataObject) -> None:
    """A real output of an attended tool, with anything changed or lost, is refused or read."""
    test, tool, case = data.draw(st.sampled_from(ENDS))
    real = output(tool, case)
    text = real.stdout.decode()
    at = data.draw(st.integers(min_value=0, max_value=len(text)))
    old, new = data.draw(st.sampled_from("0123456789.=,")), data.draw(st.sampled_from("0129-.e="))
    changed = text[:at] + text[at:].replace(old, new, data.draw(st.integers(1, 3)))
    lost = data.draw(st.integers(min_value=0, max_value=200))
    cut = changed[:at] + changed[at + lost :] if data.draw(st.booleans()) else changed
    printed = Output(real.exit_code, cut.encode(), real.stderr, data.draw(endings))
    read_or_refuse((test, tool, int(case.endswith("-server"))), printed)


@given(st.data())
def test_any_change_of_a_real_irtt(data: st.DataObject) -> None:
    """A real irtt's document with any one value replaced is refused or read."""
    printed, _, added = output("irtt", "ipv6-client").stdout.decode().partition("\x1e")
    document = json.loads(printed)
    change(data, document)
    text = f"{json.dumps(document)}\x1e{added}"
    read_or_refuse(("latency", "irtt", 0), Output(0, text.encode(), b""))


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
    """More output than any tool produces is not even parsed."""
    flood = Output(1 if test == "idle" else 0, b" " * (BYTES_MAX + 1), b"")
    with pytest.raises(ToolOutputError, match=r"too many to read|did not sleep"):
        registry.tools()[tool].read(context(test), flood)
