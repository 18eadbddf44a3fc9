"""pScheduler's clock: the difference between the clocks of two hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.model.times import MILLISECOND, SECOND
from node.plugins.tests.clock import TEST
from node.pscheduler import times
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Outcome, ParleyTest
from node.pscheduler.tests.language import Language, Rows, our_test
from node.pscheduler.tests.markup import table
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import text

_TIMEOUT = "PT5S"
_SLACK = SECOND
_WAIT_MAX = 60 * SECOND
_WIDTH = 16
"""The width to which dots fill the labels of a clock."""


class ClockLanguage(Language):
    """The difference between the clocks of two hosts."""

    name = "clock"
    ours = TEST
    description = "Measure the difference between the clocks of two hosts"
    options = (
        text("--dest", "Host to compare with"),
        text("--source", "Host that compares"),
        text("--source-node", "Node that compares, if it has another name than the source"),
        text("--timeout", "How long to wait for an answer"),
    )
    members = {
        "dest": Member(types.host_and_port, required=True, ours="dest"),
        "source": Member(types.host_and_port, ours="source"),
        "source-node": Member(types.host_and_port, since=2),
        "timeout": Member(types.duration, ours="timeout", default="PT1S"),
    }
    highest = 2
    is_open = True

    def duration(self, spec: Document) -> int:
        """Return the timeout and a second (µs)."""
        return times.parse_duration(spec.get("timeout", _TIMEOUT)) + _SLACK

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our clock, in which dest takes part: it has to be a node."""
        dest, source = types.host_of(spec["dest"]), spec.get("source")
        where = [source and types.host_of(source)]
        return our_test(TEST, self.our_spec(spec, hosts), (hosts[0], dest), where)

    def our_spec(self, spec: Document, hosts: Sequence[str]) -> Document:
        """Return the spec of our clock, which waits for no longer than a minute."""
        timeout = min(times.parse_duration(spec.get("timeout", _TIMEOUT)), _WAIT_MAX)
        return {
            **super().our_spec(spec, hosts),
            "dest": types.host_of(spec["dest"]),
            "timeout": times.format_duration(max(timeout, 10 * MILLISECOND)),
        }

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return both clocks at the start of the run, and their difference.

        The offset to its own reference is no figure of ours, and left out; the reference says how
        far a clock may be off.
        """
        offset = round(result["offset_ms"] * MILLISECOND)
        at = outcome.at or 0
        clocks = result["clocks"]
        return {
            "local": _state(at, clocks["source"]),
            "remote": _state(at + offset, clocks["dest"] or {}),
            "difference": times.format_duration(abs(offset)),
            "diags": f"The difference is wrong by at most {result['bound_ms']} ms",
        }

    def plain_text(self, spec: Document, result: Document) -> str:
        """Return the lines of both clocks, and the difference."""
        pieces = []
        for name in ("local", "remote"):
            rows = _rows(result[name])
            lines = [f"  {f'{label} ':.<{_WIDTH}} {value}" for label, value in rows]
            pieces += [f"{name.capitalize()}:", "\n".join(lines)]
        return "\n\n".join([*pieces, f"Difference ... {result.get('difference')}"])

    def html_text(self, spec: Document, result: Document) -> str:
        """Return the rows of both clocks, and the difference."""
        rows = [
            (f"{title} {label}", value)
            for name, title in (("local", "Local"), ("remote", "Remote"))
            for label, value in _rows(result[name])
        ]
        return table([*rows, ("Difference", result.get("difference"))])


def _state(at: int, clock: Mapping[str, Any]) -> Document:
    """Return a clock in the form of ``/clock``."""
    state: Document = {
        "time": times.format_precisely(at),
        "synchronized": bool(clock.get("synchronised")),
    }
    if state["synchronized"]:
        bound_ms = clock.get("error_bound_ms")
        bound = "an unknown error" if bound_ms is None else f"an error of at most {bound_ms} ms"
        state |= {"source": "kernel", "reference": f"kernel, with {bound}"}
    return state


def _rows(state: Document) -> Rows:
    rows: Rows = [("Time", state.get("time"))]
    if not state.get("synchronized"):
        return rows
    rows.append(("Synchronized", f"{state.get('source')}, {state.get('reference')}"))
    return rows + ([("Offset", state["offset"])] if "offset" in state else [])
