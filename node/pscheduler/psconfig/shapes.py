"""Pairs of ends in as few words as a mesh file has for them. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Pair = tuple[str, str]

_NAME_MAX = 63
_FEW = 4
"""Up to this many names are listed in an entry instead of in a group."""


def slug(text: str, prefix: str = "x") -> str:
    """Return a name as mesh files have them: small letters, digits and dashes.

    Letters with marks lose these: ö becomes o, and ß becomes ss.
    """
    letters = unicodedata.normalize("NFKD", text.casefold())
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    plain = re.sub(r"[^a-z0-9]+", "-", bare).strip("-")
    return (plain if plain[:1].isalpha() else f"{prefix}-{plain}".rstrip("-"))[:_NAME_MAX].rstrip(
        "-"
    )


def unused_name(wanted: str, taken: Container[str]) -> str:
    """Return a name, with a number if it is taken, shortened if it would be too long by that."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        ending = f"-{number}"
        name = wanted[: _NAME_MAX - len(ending)].rstrip("-") + ending
    return name


@dataclass
class Names:
    """Gives each content a name of its own; the same content gets the same name again."""

    taken: set[str] = field(default_factory=set)
    _given: dict[tuple[str, Any], str] = field(default_factory=dict)
    contents: dict[str, Any] = field(default_factory=dict)

    def of(self, wanted: str, content: Any, key: Any = None) -> str:
        """Return a name for a content; ``key`` stands for a content that cannot be hashed."""
        identity = (wanted, content if key is None else key)
        if (name := self._given.get(identity)) is not None:
            return name
        name = unused_name(wanted, self.taken)
        self.taken.add(name)
        self._given[identity] = name
        self.contents[name] = content
        return name


@dataclass
class Shapes:
    """Describes pairs by shapes, and collects the groups that these need.

    ``nodes`` are the names of nodes: other names are hosts, which are targets only.
    """

    nodes: Collection[str]
    groups: Names

    def described_pairs(
        self, pairs: Sequence[Pair], group: str, sides: Mapping[str, Sequence[str]]
    ) -> dict[str, Any]:
        """Return the fields of an entry that has just these pairs.

        ``sides`` are the two sides of the template's group, which may make a shorter description.
        """
        wanted = set(pairs)
        sources = tuple(dict.fromkeys(source for source, _ in pairs))
        dests = tuple(dict.fromkeys(dest for _, dest in pairs))
        if all(source == dest for source, dest in pairs):
            return {"shape": "each", "members": self._words(sources, group)}
        if set(sources) == set(dests) and _product(sources, sources) == wanted:
            return {"shape": "full-mesh", "members": self._words(sources, group)}
        if _product(sources, dests) == wanted:
            return self._star(sources, dests, group, "out")
        left, right = sides.get("a", ()), sides.get("b", ())
        if left and _product(left, right) | _product(right, left) == wanted:
            return self._star(left, right, group, "both")
        listed = [[self._word(source), self._word(dest)] for source, dest in pairs]
        return {"shape": "pairs", "pairs": listed}

    def _star(
        self, centre: Sequence[str], members: Sequence[str], group: str, direction: str
    ) -> dict[str, Any]:
        return {
            "shape": "star",
            "centre": self._words(centre, f"{group}-a"),
            "members": self._words(members, f"{group}-b"),
            "direction": direction,
        }

    def _words(self, names: Iterable[str], group: str) -> list[str]:
        """Return names as an entry has them: listed if they are few, else as a group."""
        every = list(dict.fromkeys(names))
        nodes = [name for name in every if name in self.nodes]
        hosts = [name for name in every if name not in self.nodes]
        words = nodes if len(nodes) <= _FEW else [self._group(group, nodes)]
        return words + ([self._hosts(f"{group}-hosts", hosts)] if hosts else [])

    def _word(self, name: str) -> str:
        return name if name in self.nodes else self._hosts(slug(name, "host"), [name])

    def _group(self, wanted: str, nodes: Sequence[str]) -> str:
        return self.groups.of(slug(wanted, "group"), list(nodes), tuple(nodes))

    def _hosts(self, wanted: str, hosts: Sequence[str]) -> str:
        return self.groups.of(slug(wanted, "host"), {"hosts": list(hosts)}, tuple(hosts))


def _product(sources: Iterable[str], dests: Iterable[str]) -> set[Pair]:
    far = list(dests)
    return {(source, dest) for source in sources for dest in far if source != dest}
