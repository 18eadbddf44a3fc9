"""The participants of a test to which one of them sends, and which of them listen. Pure."""

from __future__ import annotations

from typing import Any

from node.plugins.contracts import Test, Tool


def stated_port(spec: Any) -> int | None:
    """Return the port that a spec states for whoever listens, None if its node assigns one."""
    port = getattr(spec, "port", None)
    return port if isinstance(port, int) else None


def listening_places(tool: Tool, spec: Any, count: int) -> frozenset[int]:
    """Return the places of those among ``count`` participants that listen at a port.

    A port that the spec states is one at which a participant listens as well.
    """
    if stated_port(spec) is not None and count > 1:
        spec = spec.model_copy(update={"port": None})
    return frozenset(place for place in range(count) if tool.needs_port(spec, place))


def receiving_places(test: Test, tool: Tool, spec: Any, count: int, own: int) -> frozenset[int]:
    """Return the places of the participants to which the one at ``own`` may send.

    Where nobody listens at a port, that is all others, unless the test moves nothing.
    """
    if places := listening_places(tool, spec, count):
        return places - {own}
    if test.expected_bytes(spec, None) == 0:
        return frozenset()
    return frozenset(range(count)) - {own}
