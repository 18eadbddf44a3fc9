"""A line of text over TCP, by pScheduler's ``simplestreamer`` and by ours. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node.model.times import MILLISECOND
from node.plugins.tests.simplestream import (
    ReceivingPart,
    SendingPart,
)
from node.pscheduler.dialects.contract import HeardPart, diagnostics, failed_part, failure_of
from node.pscheduler.refusals import impossible
from node.pscheduler.tests.contract import Document, PartOutcome
from node.pscheduler.times import format_duration, parse_duration

_SENDER, _RECEIVER = 0, 1
_PORTS = range(1, 65_536)
_TEXT_MAX = 65_536


class SimplestreamerDialect:
    """Sender and receiver of one text."""

    tool = "simplestreamer"
    own = "simplestreamer"
    tests: tuple[str, ...] = ("simplestream",)
    description = "Send a text from one host to another over TCP"

    def obstacle(self, spec: Document) -> str | None:  # noqa: ARG002 - contract
        """Return None: the language of the test has refused what our test cannot say."""
        return None

    def adapted_spec(self, spec: Document) -> Document:
        """Return the spec unchanged."""
        return spec

    def data(self, place: int, held: Mapping[str, int], version: str | None) -> Document:  # noqa: ARG002 - contract
        """Return, of a receiver, the port at which it listens."""
        return {"listen-port": held["port"]} if place == _RECEIVER else {}

    def command_data(self, place: int, data: Document) -> dict[str, int]:
        """Return the port of a receiver.

        :raises Refusal: it has none.
        """
        if place != _RECEIVER:
            return {}
        port = data.get("listen-port")
        if isinstance(port, bool) or not isinstance(port, int) or port not in _PORTS:
            raise impossible("Participant data has no valid listen-port for simplestreamer.")
        return {"port": port}

    def told_part(self, place: int, spec: Document, part: PartOutcome) -> Document:  # noqa: ARG002 - contract
        """Return the text that was sent, or that has arrived, as pScheduler's part."""
        if part.result is None:
            return failed_part(part)
        result: Document
        if place == _SENDER:
            sent = SendingPart.model_validate(part.result)
            result = {"dawdled": _duration(sent.dawdled_ms), "sent": sent.sent}
        else:
            received = ReceivingPart.model_validate(part.result)
            elapsed = _duration(received.elapsed_ms)
            result = {"received": received.received, "elapsed-time": elapsed}
        return {"succeeded": True, "diags": diagnostics(part), "error": None, "result": result}

    def heard_part(self, place: int, spec: Mapping[str, Any], part: Document | None) -> HeardPart:  # noqa: ARG002 - contract
        """Return the text that another participant has sent or received, as our part."""
        reason = failure_of(part)
        result = (part or {}).get("result")
        if reason is not None or not isinstance(result, dict):
            return HeardPart(None, reason or "its result is no object")
        word, time = ("sent", "dawdled") if place == _SENDER else ("received", "elapsed-time")
        text = result.get(word)
        try:
            took_ms = parse_duration(str(result.get(time))) / MILLISECOND
        except ValueError as fault:
            return HeardPart(None, f"its result is not understood: {fault}")
        if not isinstance(text, str) or len(text) > _TEXT_MAX:
            return HeardPart(None, f"its result has no valid text that was {word}")
        if place == _SENDER:
            return HeardPart(SendingPart(sent=text, dawdled_ms=took_ms).model_dump(mode="json"))
        return HeardPart(ReceivingPart(received=text, elapsed_ms=took_ms).model_dump(mode="json"))


def _duration(ms: float) -> str:
    return format_duration(round(ms * MILLISECOND))


DIALECT = SimplestreamerDialect()
