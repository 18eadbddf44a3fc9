"""A line of text over TCP, by pScheduler's ``simplestreamer`` and by ours. Pure."""

from __future__ import annotations

from node.model.errors import ToolOutputError
from node.plugins.tests.simplestream import ReceivingPart, SendingPart
from node.pscheduler.dialects.contract import Dialect, diagnostics, failed_part
from node.pscheduler.tests.contract import Document, PartOutcome
from node.pscheduler.times import format_milliseconds, parse_milliseconds

_SENDER = 0
_TEXT_MAX = 65_536


class SimplestreamerDialect(Dialect):
    """Sender and receiver of one text."""

    tool = "simplestreamer"
    own = "simplestreamer"
    tests = ("simplestream",)
    description = "Send a text from one host to another over TCP"
    port_member = "listen-port"

    def told_part(self, place: int, spec: Document, part: PartOutcome) -> Document:
        """Return the text that was sent, or that has arrived, as pScheduler's part."""
        if part.result is None:
            return failed_part(part)
        result: Document
        if place == _SENDER:
            sent = SendingPart.model_validate(part.result)
            result = {"dawdled": format_milliseconds(sent.dawdled_ms), "sent": sent.sent}
        else:
            received = ReceivingPart.model_validate(part.result)
            elapsed = format_milliseconds(received.elapsed_ms)
            result = {"received": received.received, "elapsed-time": elapsed}
        return {"succeeded": True, "diags": diagnostics(part), "error": None, "result": result}

    def our_part(self, place: int, result: Document) -> SendingPart | ReceivingPart:
        """Return the text that another participant has sent or received, as our part."""
        word, time = ("sent", "dawdled") if place == _SENDER else ("received", "elapsed-time")
        text, took_ms = result.get(word), parse_milliseconds(result.get(time))
        if not isinstance(text, str) or len(text) > _TEXT_MAX:
            raise ToolOutputError(f"its result has no valid text that was {word}")
        if place == _SENDER:
            return SendingPart(sent=text, dawdled_ms=took_ms)
        return ReceivingPart(received=text, elapsed_ms=took_ms)


DIALECT = SimplestreamerDialect()
