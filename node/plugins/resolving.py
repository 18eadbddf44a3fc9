"""Tools that are started with an address instead of a name. Pure.

Our own program looks the name up and becomes the tool. It prints the address first, because such
tools do not report it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from node.plugins.binding import version_of
from node.plugins.contracts import Command, Output, PartContext
from node.plugins.hops import address_in
from node.plugins.reading import failure, text_of

ADDRESS = "ADDRESS"
"""A placeholder in the argv of a tool, replaced by the address."""

_PROGRAM = Path(__file__).resolve().parent / "tools" / "programs" / "resolved.py"


def resolving_command(
    part: PartContext, four: Sequence[str], six: Sequence[str] | None = None
) -> Command:
    """Return the command that looks ``dest`` up and becomes ``four``, or ``six`` for IPv6."""
    arguments = {
        "host": part.addresses.get(part.spec.dest, part.spec.dest),
        "ip_version": version_of(part),
        "argv": {"4": [*four], "6": [*(four if six is None else six)]},
    }
    document = json.dumps(arguments, separators=(",", ":"))
    return Command((sys.executable, "-I", "-S", str(_PROGRAM), document))


def split_address(output: Output, program: str) -> tuple[str, list[str]]:
    """Return the address, and the lines that the tool printed after it.

    :raises node.model.errors.ToolOutputError: it is not an address, or nothing was printed.
    """
    first, *lines = text_of(output, program).splitlines() or [""]
    if not first:
        raise failure(output, program, "it printed nothing")
    return address_in(first, program), lines
