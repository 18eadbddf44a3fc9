"""Directories of nodes: made and signed here, or checked, and their nodes added.

A directory is trusted with nothing but names, URLs and keys. Each node in it is added as
:class:`PeerRegistrar` adds one whose key was given: its card has to show that key, and that name.
URLs are the word of who has made the directory, and lead to nothing that only this host reaches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import aiohttp

from node.model.errors import FieldFault, HostError, InvalidDocument, ParleyError
from node.model.naming import Described, normalised_word
from node.model.wire.directories import (
    DIRECTORY_MAX,
    MEDIA_TYPE,
    VERSION,
    DirectoryEntry,
    DirectoryMaker,
    DirectoryRequest,
    IntroducedNode,
    IntroductionReport,
    IntroductionState,
    NodeDirectory,
)
from node.model.wire.nodes import NodeAddition
from node.peers.directory import Directory
from node.peers.monitor import PeerMonitor
from node.peers.registration import PeerRegistrar
from node.runtime.gathering import gather_some
from node.store.core import Core
from node.store.nodes import KnownNode
from node.trust.statements import InvalidStatementError, StatementKind, digests, read_statement

_AT_ONCE = 64
"""Number of nodes that are asked for their cards at the same time."""

_ABOUT = (
    "A directory of nodes that measure with Parley. Each owner adds them to their own node: parley "
    "node introduce FILE. The key that signed it proves nothing by itself: compare it with what "
    "the owner of that node says."
)

_TO_ADD = frozenset({IntroductionState.ADDED, IntroductionState.CHANGED})


class IntroductionRules(Protocol):
    """Judges where a node of a directory is asked for its card."""

    def introduced_refusal(self, url: str) -> str | None:
        """Return why nothing is asked there on the word of a directory; None if it is."""
        ...

    def session_to_introduced(self) -> aiohttp.ClientSession:
        """Return a session that connects to nothing but what is good for that word."""
        ...


class DirectoryFiles:
    """Signs directories of nodes, and introduces those of others to this node."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        registration: PeerRegistrar,
        monitor: PeerMonitor,
        places: IntroductionRules,
    ) -> None:
        """``monitor`` looks whether a node that was added knows this one.

        ``places`` judges where nodes are asked for their cards.
        """
        self._places = places
        self._core = core
        self._directory = directory
        self._registration = registration
        self._monitor = monitor

    async def make(self, request: DirectoryRequest) -> NodeDirectory:
        """Return a signed directory of these nodes, or else of those that are known here.

        This node is in it in any case, as it is.

        :raises InvalidDocument: a name or a key is that of this node and of another one, or there
            are too many nodes.
        """
        known = await self._directory.known_of_parley()
        own = _entry(self._directory.self)
        given = request.nodes
        entries = tuple(map(_entry, filter(_is_named, known))) if given is None else given
        others = tuple(entry for entry in entries if entry.identity != own.identity)
        if any(entry.name == own.name for entry in others):
            raise _fault(f"has the name of this node, {own.name}, with another key")
        if len(others) >= DIRECTORY_MAX:
            raise _fault(f"has more than {DIRECTORY_MAX} nodes; make several directories")
        unsigned = NodeDirectory(
            type=MEDIA_TYPE,
            version=VERSION,
            about=_ABOUT,
            made=DirectoryMaker(at=self._core.clock.now(), name=own.name, node=own.identity),
            nodes=(own, *others),
            signature="",
        )
        if self._core.signer is None:
            raise HostError("this node has no key to sign with")
        claims = {"sha256": digests(_signed_values(unsigned))}
        signature = self._core.signer.statement(StatementKind.DIRECTORY, claims)
        return unsigned.model_copy(update={"signature": signature})

    async def introduce(self, directory: NodeDirectory, *, dry_run: bool) -> IntroductionReport:
        """Add the nodes of a directory that are not known here, and follow changed URLs.

        Each node is added or refused alone. With ``dry_run`` no node is asked or added.

        :raises InvalidDocument: the directory is not what its maker signed.
        """
        check_directory(directory)
        compared = compare(directory.nodes, await self._directory.known(), self._core.identity)
        signer = next((n for n in self._directory.all if n.identity == directory.made.node), None)
        if not dry_run:
            compared = await gather_some(self._add, compared, _AT_ONCE)
        return IntroductionReport(
            made=directory.made,
            signer="unknown" if signer is None else "self" if signer.is_self else "known",
            signer_name=None if signer is None else signer.name,
            nodes=tuple(compared),
        )

    async def _add(self, introduced: IntroducedNode) -> IntroducedNode:
        if introduced.state not in _TO_ADD:
            return introduced
        url = introduced.url
        if url is not None and (why := self._places.introduced_refusal(url)) is not None:
            return _refused(introduced, why)
        addition = NodeAddition(url=url, identity=introduced.identity)
        async with self._places.session_to_introduced() as session:
            try:
                await self._registration.add(addition, introduced.name, session)
                await self._monitor.look_at(introduced.identity)
            except ParleyError as error:
                return _refused(introduced, error.detail)
        return introduced


def _refused(introduced: IntroducedNode, why: str) -> IntroducedNode:
    return introduced.model_copy(update={"state": IntroductionState.REFUSED, "reason": why})


def check_directory(directory: NodeDirectory) -> None:
    """Check that a directory is what its maker has signed.

    :raises InvalidDocument: it is not; with a pointer to each fault.
    """
    try:
        statement = read_statement(directory.signature, StatementKind.DIRECTORY)
    except InvalidStatementError as error:
        raise InvalidDocument([FieldFault("/signature", str(error))]) from None
    made = directory.made
    if statement.identity != made.node:
        fault = f"is made with the key {statement.identity}, not with that of {made.name}"
        raise InvalidDocument([FieldFault("/signature", fault)])
    if changed := statement.changed_names(_signed_values(directory)):
        fault = f"is not what {made.name} signed: the file was altered or damaged"
        raise InvalidDocument([FieldFault(f"/{name}", fault) for name in changed])


def _signed_values(directory: NodeDirectory) -> dict[str, object]:
    return directory.model_dump(mode="json", exclude={"signature"})


def _entry(node: KnownNode) -> DirectoryEntry:
    return DirectoryEntry(name=node.name, url=node.url, identity=node.identity)


def _is_named(node: KnownNode) -> bool:
    """Return whether a node has told its name; one that fetches its work may not have yet."""
    return node.is_self or node.url is not None or node.seen_at is not None


def _fault(detail: str) -> InvalidDocument:
    return InvalidDocument([FieldFault("/nodes", detail)])


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
