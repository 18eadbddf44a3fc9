"""The stored form of what programs print."""

from __future__ import annotations

from node.model.wire.participants import OUTPUT_LENGTH_MAX
from node.plugins.contracts import Output

OUTPUT_END_KEPT = 5_000
"""Length of the end that is kept of long output: a program's reason and totals come last."""


def output_text(output: Output) -> str:
    """Return a program's output as text for Postgres; of long output the beginning and the end."""
    text = storable_text((output.stdout + output.stderr).decode("utf-8", "replace"))
    if len(text) <= OUTPUT_LENGTH_MAX:
        return text
    end = text[-OUTPUT_END_KEPT:]
    gap = f"\n[about {len(text) - OUTPUT_LENGTH_MAX} characters are left out]\n"
    return f"{text[: OUTPUT_LENGTH_MAX - len(end) - len(gap)]}{gap}{end}"


def storable_text(text: str) -> str:
    """Return the text without the characters that Postgres does not accept."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
