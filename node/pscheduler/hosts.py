"""Hosts as pScheduler writes them, and the nodes that they stand for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from node.model.loopback import is_loopback
from node.model.naming import NodeIndex
from node.model.nodekinds import NodeKind
from node.pscheduler.refusals import Refusal, impossible, invalid
from node.store.nodes import KnownNode


def without_port(word: str) -> str:
    """Return a host without its port: ``a.example:8443``, ``[::1]:8443`` and ``::1`` are read."""
    if word.startswith("["):
        return word[1:].partition("]")[0]
    host, colon, port = word.rpartition(":")
    return host if colon and port.isdecimal() and ":" not in host else word


def own_words(itself: KnownNode, others: Collection[str]) -> frozenset[str]:
    """Return the words that stand for this node, in small letters."""
    words = {itself.name, itself.address, *others}
    return frozenset(word.lower() for word in words)


def participant_names(
    participants: Sequence[str | None],
    own: Collection[str],
    itself: KnownNode,
    known: NodeIndex[KnownNode],
) -> tuple[str, ...]:
    """Return the names of the nodes that take part, this one first.

    The first participant is whoever is asked, by whatever name the client reached it.

    :raises Refusal: 400 if it is another node that is known here, or one takes part twice; 422 if
        another participant is not known here.
    """
    lead, *others = participants
    node = (
        None
        if lead is None or without_port(lead).lower() in own
        else known.find(without_port(lead))
    )
    if node is not None and not node.is_self:
        raise invalid(f"{lead} leads this task, and this is {itself.name}: post the task there.")
    names = [itself.name]
    for word in others:
        name = itself.name if word is None else name_of(word, own, itself, known)
        if name in names:
            raise Refusal(400, "All participants must be on separate systems.")
        names.append(name)
    return tuple(names)


def first_fault(
    names: Sequence[str], own: Collection[str], itself: KnownNode, known: NodeIndex[KnownNode]
) -> Refusal | None:
    """Return why the first of these hosts that is no known node is refused; None if all are."""
    for name in names:
        try:
            name_of(name, own, itself, known)
        except Refusal as refusal:
            return refusal
    return None


def any_runs_pscheduler(names: Sequence[str], known: NodeIndex[KnownNode]) -> bool:
    """Return whether one of these hosts is known as one that runs pScheduler."""
    found = (known.find(without_port(name)) for name in names)
    return any(node is not None and node.kind is NodeKind.PSCHEDULER for node in found)


def name_of(word: str, own: Collection[str], itself: KnownNode, known: NodeIndex[KnownNode]) -> str:
    """Return the name of the node that a word stands for.

    :raises Refusal: 422, no node that is known here, or several of them.
    """
    host = without_port(word)
    if host.lower() in own:
        return itself.name
    node = known.find(host)
    if node is not None:
        return node.name
    if is_loopback(host):
        return itself.name
    sharing = ", ".join(sorted(each.name for each in known.nodes_sharing(host)))
    if sharing:
        raise impossible(f"{host} is shared by the nodes {sharing}; use the name of one of them.")
    raise impossible(
        f"No node {host} is known here; its owner and this one's make it known with: "
        "parley node add URL"
    )
