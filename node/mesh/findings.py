"""Findings about a mesh: place in the file, detail, and remedy. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from node.model.similar import suggestion

_HEADER = re.compile(r"(\[\[?)([^\]]+)\]")
_FIELD = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*=""")


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
    """Return a remedy for an unknown name, as a sentence: similar names, or all known ones."""
    remedy = suggestion(word, sorted(set(known)))
    return remedy if remedy.endswith("?") else f"{remedy}."


def line_of(toml: str, pointer: str) -> int | None:
    """Return the line (from 1) of this place in a TOML file, or the nearest line around it."""
    wanted = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    if not wanted:
        return None
    lines = _lines_of_places(toml)
    around = (tuple(wanted[:length]) for length in range(len(wanted), 0, -1))
    return next((lines[place] for place in around if place in lines), None)


@lru_cache(maxsize=1)
def _lines_of_places(toml: str) -> Mapping[tuple[str, ...], int]:
    """Return by place the first line of a TOML file that has it."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    counts: dict[str, int] = {}
    for number, line in enumerate(map(str.strip, toml.splitlines()), 1):
        if header := _HEADER.match(line):
            name = header[2].strip()
            table = tuple(step.strip(" \"'") for step in name.split("."))
            if header[1] == "[[":
                counts[name] = counts.get(name, -1) + 1
                table = (*table, str(counts[name]))
            here = table
        elif field := _FIELD.match(line):
            here = (*table, field[1] or field[2] or field[3])
        else:
            continue
        found.setdefault(here, number)
    return found
