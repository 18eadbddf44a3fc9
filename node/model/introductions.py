"""Comparison of a directory of nodes with the nodes that are known here. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from node.model.naming import Described, normalised_word
from node.model.wire.directories import DirectoryEntry, IntroducedNode, IntroductionState


def compare(
    entries: Iterable[DirectoryEntry], known: Sequence[Described], own: str
) -> list[IntroducedNode]:
    """Return for each entry what its introduction would come to, before any node is asked.

    ``own`` is the identity of this node.
    """
    by_identity = {node.identity: node for node in known}
    by_name = {normalised_word(node.name): node for node in known}
    compared = []
    for entry in entries:
        state, reason = IntroductionState.ADDED, None
        here, namesake = by_identity.get(entry.identity), by_name.get(normalised_word(entry.name))
        if entry.identity == own:
            state = IntroductionState.SELF
        elif namesake is not None and namesake.identity != entry.identity:
            state = IntroductionState.REFUSED
            reason = _other_key_message(namesake, own)
        elif here is not None:
            reason = _change(here, entry)
            state = IntroductionState.KNOWN if reason is None else IntroductionState.CHANGED
        compared.append(IntroducedNode(**vars(entry), state=state, reason=reason))
    return compared


def _other_key_message(namesake: Described, own: str) -> str:
    if namesake.identity == own:
        return "this node itself has this name, and another key"
    return (
        f"{namesake.name} is known here with the key {namesake.identity}; if that is not its key "
        f"any more, remove it: parley node remove {namesake.name}"
    )


def _change(here: Described, entry: DirectoryEntry) -> str | None:
    """Return what a directory says otherwise of a node than what is known here, or None.

    A node that fetches its work says itself what it is called.
    """
    if here.url != entry.url:
        return f"its URL was {here.url or 'none (it fetched its work)'}"
    if entry.url is not None and here.name != entry.name:
        return f"its name was {here.name}"
    return None
