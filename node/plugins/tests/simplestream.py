"""One text from one participant to another over TCP: whether a connection can be made. Pure.

Participant 0 (``source``) connects and sends, participant 1 (``dest``) listens and reads to the
end of the stream. It is the smallest measurement between two nodes, and tells whether their ports
can be reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from node.model.times import MINUTE, SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import NonNegative, Port, VersionOfDest, between, duration_field
from node.plugins.figures import delay_text, metric
from node.plugins.outline import PairTest, check_two
from node.plugins.participation import joined_reasons, part_of

TEXT_MAX = 8_192
_RECEIVED_MAX = 65_536


def _storable_text(value: object) -> object:
    """Replace what no database keeps: NUL, and halves of surrogate pairs."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


StreamText = Annotated[str, BeforeValidator(_storable_text), Field(max_length=_RECEIVED_MAX)]
"""A text that was sent or received."""


class SimplestreamSpec(Document):
    """The text to send, and how long to try."""

    source: Host | None = Field(
        default=None, description="The host that sends; by default the lead itself."
    )
    dest: Host | None = Field(
        default=None, description="The host that listens; required here or in `participants`."
    )
    text: Annotated[str, Field(min_length=1, max_length=TEXT_MAX, pattern=r"^[^\x00]*$")] = Field(
        default="A text from Parley.", description="The text to send, up to 8192 characters."
    )
    dawdle: Annotated[Duration, between(0, MINUTE)] = duration_field(
        0, "Send only after a random time up to this, PT0S to PT1M."
    )
    timeout: Annotated[Duration, between(SECOND, MINUTE)] = duration_field(
        5 * SECOND, "How long to try to connect and to wait for the text, PT1S to PT1M."
    )
    ip_version: VersionOfDest = None
    port: Port | None = Field(
        default=None, description="The port at dest; by default its node assigns one."
    )

    @model_validator(mode="after")
    def _check_fields(self) -> SimplestreamSpec:
        check_two(self)
        return self


class SendingPart(Document):
    """The part of the participant that sends."""

    sent: StreamText
    dawdled_ms: NonNegative


class ReceivingPart(Document):
    """The part of the participant that listens."""

    received: StreamText
    elapsed_ms: NonNegative


class SimplestreamResult(Document):
    """The text that was sent, and the one that has arrived."""

    sent: StreamText = Field(description="The text that was sent.")
    received: StreamText = Field(description="The text that has arrived.")
    dawdled_ms: NonNegative = Field(description="How long the sender waited before, milliseconds.")
    elapsed_ms: NonNegative = Field(
        description="The time from the agreed start until dest had all of it, in milliseconds."
    )


class SimplestreamTest(PairTest):
    """One text from one participant to another over TCP."""

    name = "simplestream"
    title = "One text over TCP, to see whether a port can be reached"
    example: Mapping[str, Any] = {"dest": "b.example"}
    spec_model: type[Document] = SimplestreamSpec
    result_model: type[Document] = SimplestreamResult
    part_models: tuple[type[Document], ...] = (SendingPart, ReceivingPart)

    def expected_bytes(self, spec: SimplestreamSpec, mbps: int | None) -> int:
        """Return the length of the text."""
        return len(spec.text.encode("utf-8", "replace"))

    def merge(self, spec: SimplestreamSpec, parts: Sequence[Part]) -> Merged:
        """Merge both parts; the text must have arrived as it was sent."""
        sender, sender_reason = part_of(parts, 0, SendingPart)
        receiver, receiver_reason = part_of(parts, 1, ReceivingPart)
        if sender is None or receiver is None:
            return Merged(None, joined_reasons(sender_reason, receiver_reason))
        result = SimplestreamResult(
            sent=sender.sent,
            received=receiver.received,
            dawdled_ms=sender.dawdled_ms,
            elapsed_ms=receiver.elapsed_ms,
        )
        whole = sender.sent == receiver.received
        changed = None if whole else "the text that arrived is not the one that was sent"
        reason = joined_reasons(sender_reason, receiver_reason, changed)
        return Merged(result.model_dump(mode="json"), reason)

    def summary(self, result: Result) -> str:
        """Return ``19 characters in 1.2 ms``."""
        figures = SimplestreamResult.model_validate(result)
        return f"{len(figures.received)} characters in {delay_text(figures.elapsed_ms)}"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return the time until the text had arrived."""
        return metric("elapsed_ms", SimplestreamResult.model_validate(result).elapsed_ms, "ms")


TEST = SimplestreamTest()
