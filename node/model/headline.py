"""The one line that names a measurement everywhere: ``rtt  a → 192.0.2.7``. Pure.

Lists, explanations, events and the page show it, so that a reader finds the same words in all of
them. It has the test, two spaces, and the ends: the participants by name, and the target of a test
that needs no second participant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from node.model.wire.seats import SeatRequest

_PAIR = 2
_TARGETS = ("dest", "url", "name")
"""The fields of specs that name a target, in the order in which they are looked for."""


def headline(
    test: str,
    participants: Sequence[str],
    spec: Mapping[str, Any],
    pool: SeatRequest | None = None,
) -> str:
    """Return the headline of a task or a run.

    ``participants`` are names, in the order of the test. ``pool`` is the request of a pool task,
    whose participants are not known yet.

    >>> headline("tcp", ["a"], {"dest": "192.0.2.7", "port": 443})
    'tcp  a → 192.0.2.7:443'
    """
    ends = _ends(participants, spec) if pool is None else _pool_ends(pool, spec)
    return f"{test}  {ends}" if ends else test


def direction(names: Sequence[str], spec: Mapping[str, Any]) -> tuple[str, str]:
    """Return from whom to whom a task measures, each empty if that is not one name.

    >>> direction(["a", "b"], {"dest": "b", "reverse": True})
    ('b', 'a')
    """
    if len(names) == 1:
        return names[0], target_of(spec) or ""
    if len(names) == _PAIR and "dest" in spec:
        first, second = names
        return (second, first) if spec.get("reverse") is True else (first, second)
    return "", ""


def _ends(names: Sequence[str], spec: Mapping[str, Any]) -> str:
    if len(names) == 1:
        target = target_of(spec)
        if target is not None:
            return f"{names[0]} → {target}"
        interface = spec.get("interface")
        return f"{names[0]} ({interface})" if isinstance(interface, str) else names[0]
    if len(names) == _PAIR and "dest" in spec:
        return (" ← " if spec.get("reverse") is True else " → ").join(names)
    return ", ".join(names)


def _pool_ends(pool: SeatRequest, spec: Mapping[str, Any]) -> str:
    seats = f"{pool.k} node{'' if pool.k == 1 else 's'} of {pool.pool}"
    if pool.field in _TARGETS:
        source = spec.get("source")
        return f"{source} → {seats}" if isinstance(source, str) else seats
    target = target_of(spec)
    return seats if target is None else f"{seats} → {target}"


def target_of(spec: Mapping[str, Any]) -> str | None:
    """Return the target that a spec names, with its port; None if it names none."""
    field = next((name for name in _TARGETS if isinstance(spec.get(name), str)), None)
    if field is None:
        return None
    target = str(spec[field])
    if field == "name":
        return _question(target, spec)
    port = spec.get("port")
    if field != "dest" or not isinstance(port, int):
        return target
    return f"[{target}]:{port}" if ":" in target else f"{target}:{port}"


def _question(name: str, spec: Mapping[str, Any]) -> str:
    """Return what is asked, as dig would be called: ``example.org MX @192.0.2.53``."""
    words = [name]
    if spec.get("type") not in {None, "A"}:
        words.append(str(spec["type"]))
    if spec.get("server") is not None:
        words.append(f"@{spec['server']}")
    return " ".join(words)
