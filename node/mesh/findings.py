"""Findings about a mesh: place in the file, detail, and remedy. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_SHOWN = 8
_HEADER = re.compile(r"\s*(\[\[|\[)\s*([^\]]+?)\s*\]")
_FIELD = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*=""")


class FindingKind(StrEnum):
    """The kind of a finding."""

    INVALID = "invalid"
    """The file has a fault; nothing of it can be applied."""
    IDLE = "idle"
    """A part of the file has no effect."""
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    NO_TIME = "no-time"


@dataclass(frozen=True)
class Finding:
    """A fault or warning; ``pointer`` (RFC 6901) is its place in the file."""

    cause: FindingKind
    pointer: str
    detail: str
    remedy: str = ""

    @property
    def stops(self) -> bool:
        """Return whether it must be corrected before anything can be applied."""
        return self.cause is FindingKind.INVALID


def similar_names(word: str, known: Iterable[str]) -> str:
    """Return a remedy for an unknown name: similar names, or all known ones."""
    names = sorted(set(known))
    alike = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    if alike:
        return f"did you mean {' or '.join(alike)}?"
    return f"there are: {join_names(names)}." if names else "there is none."


def join_names(names: Iterable[str]) -> str:
    """Join the first names, and count the rest."""
    every = list(names)
    more = len(every) - _SHOWN
    return ", ".join(every[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def line_of(toml: str, pointer: str) -> int | None:
    """Return the line (from 1) of this place in a TOML file, or the nearest line around it."""
    wanted = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    best, found_line = 0, None
    table: list[str] = []
    counts: dict[str, int] = {}
    for number, line in enumerate(toml.splitlines(), 1):
        if header := _HEADER.match(line):
            table = [step.strip(" \"'") for step in header[2].split(".")]
            if header[1] == "[[":
                counts[header[2]] = counts.get(header[2], -1) + 1
                table.append(str(counts[header[2]]))
            here = table
        elif field := _FIELD.match(line):
            here = [*table, field[1] or field[2] or field[3]]
        else:
            continue
        if len(here) > best and here == wanted[: len(here)]:
            best, found_line = len(here), number
    return found_line
