"""The bounds of a participant's part: its lead keeps no more than a test makes. Pure.

Parts come from other hosts, as large as a message may be. A lead keeps one that is a part of its
test up to :data:`PART_BYTES_MAX`, or what the test says. Of one that is none, it keeps what helps
to find the fault: up to :data:`UNLIKE_BYTES_MAX`, which all participants of a run share. A share of
an interval is one of thousands: it is kept if it is one.

A part that is not kept is a reason, told as that of the run. Participants judge their own parts in
the same way before they sign and send them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import ValidationError

from node.model.byte_quotas import bytes_text
from node.model.wire.fields import Document
from node.plugins.contracts import LargeParts, PartModelling, Result, ShareModelling, Test
from node.plugins.participation import first_fault

PART_BYTES_MAX = 256_000
"""Maximum length of a part as JSON, where its test sets none."""

UNLIKE_BYTES_MAX = 64_000
"""Maximum length of what is not a part of its test, of all participants of a run together."""

SHARE_BYTES_MAX = 32_000
"""Maximum length of a participant's share of one interval."""

COMMAND_LENGTH_MAX = 4_096
"""Maximum characters of a command: its words, and a blank for each."""

_FAULT_LENGTH_MAX = 300


def fault_of_part(test: Test, participant: int, count: int, result: Result) -> str | None:
    """Return why the part of one of ``count`` participants is not kept; None if it is.

    A short one that is no part of its test is kept: the test tells so when it merges them.
    """
    size = _length_bytes(result)
    most = test.part_bytes_max if isinstance(test, LargeParts) else PART_BYTES_MAX
    if size > most:
        return f"its part of {bytes_text(size)} is larger than {bytes_text(most)}"
    if size <= UNLIKE_BYTES_MAX // count or not isinstance(test, PartModelling):
        return None
    unlike = _model_fault(test.part_models, participant, result)
    if unlike is None:
        return None
    return f"its part of {bytes_text(size)} is not a result ({unlike}), and was not kept"


def fault_of_share(test: Test, participant: int, result: Result) -> str | None:
    """Return why a participant's share of an interval is not kept; None if it is."""
    if (size := _length_bytes(result)) > SHARE_BYTES_MAX:
        return f"its share of {bytes_text(size)} is larger than {bytes_text(SHARE_BYTES_MAX)}"
    if not isinstance(test, ShareModelling):
        return None
    unlike = _model_fault(test.share_models, participant, result)
    return None if unlike is None else f"its share is not a result ({unlike}), and was not kept"


def short_command(command: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return a command as it is kept: the words that fit, and a mark if there are more."""
    if command is None:
        return None
    words, room = list[str](), COMMAND_LENGTH_MAX
    for word in command:
        if len(word) + 1 > room:
            return (*words, word[: room - 1] + "…")
        words.append(word)
        room -= len(word) + 1
    return tuple(words)


def _model_fault(models: Sequence[type[Document]], participant: int, result: Result) -> str | None:
    try:
        models[min(participant, len(models) - 1)].model_validate(result)
    except ValidationError as fault:
        return first_fault(fault)[:_FAULT_LENGTH_MAX]
    return None


def _length_bytes(result: Result) -> int:
    text = json.dumps(result, separators=(",", ":"), ensure_ascii=False)
    return len(text.encode("utf-8", "surrogatepass"))
