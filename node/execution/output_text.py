"""What is kept of what programs print."""

from __future__ import annotations

from node.model.wire.participants import OUTPUT_LENGTH_MAX
from node.plugins.contracts import Output

OUTPUT_END_KEPT = 5_000
"""Of long output, so much of the end is kept: a program's reason and sums come last."""


def output_text(output: Output) -> str:
    """What a program printed, as text that Postgres takes; of long output beginning and end."""
    text = storable_text((output.stdout + output.stderr).decode("utf-8", "replace"))
    if len(text) <= OUTPUT_LENGTH_MAX:
        return text
    end = text[-OUTPUT_END_KEPT:]
    gap = f"\n[about {len(text) - OUTPUT_LENGTH_MAX} characters are left out]\n"
    return f"{text[: OUTPUT_LENGTH_MAX - len(end) - len(gap)]}{gap}{end}"


def storable_text(text: str) -> str:
    """The text without what Postgres does not take."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
