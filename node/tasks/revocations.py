"""Revoked keys: what they have here ends, and the other nodes are told, once each.

A node believes a revocation by its signature, whoever tells it, and passes on what was new to it.
What others tell counts only for keys of nodes that are known here, so that nobody can fill the
table; the owner may also name keys of nodes that are unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import structlog

from node.client.peers import Peers
from node.model.errors import (
    Conflict,
    FieldFault,
    InvalidDocument,
    NotAuthenticated,
    NotFound,
    ParleyError,
)
from node.model.features import Feature, has_feature
from node.model.nodekinds import NodeKind
from node.model.reasons import revoked_itself, revoked_on
from node.model.wire.keys import (
    REVOCATIONS_MAX,
    RevocationReport,
    RevocationRequest,
    UntoldNode,
)
from node.peers.directory import Directory
from node.peers.successions import Successions
from node.store import nodes
from node.store.core import Core
from node.store.database import Connection
from node.store.nodes import KnownNode
from node.tasks.node_removal import NodeRemover
from node.trust.lineage import Lineage
from node.trust.revocations import Revocation, Ruling, read_revocation, ruling, sign_revocation
from node.trust.statements import InvalidStatementError

_TOLD_WITHIN_S = 10.0

log = structlog.get_logger()


class Revocations:
    """Takes in which keys are revoked, and tells the others."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        peers: Peers,
        successions: Successions,
        removal: NodeRemover,
    ) -> None:
        """``removal`` ends what a node has here."""
        self._core = core
        self._successions = successions
        self._directory = directory
        self._peers = peers
        self._removal = removal

    async def revoke_own(self, wanted: RevocationRequest) -> RevocationReport:
        """Sign that a key of this node is revoked, and unless that is all, tell it and obey.

        :raises Conflict: this node never had the key.
        """
        signer = self._core.signer
        lineage = Lineage(self._core.identity) if signer is None else signer.lineage
        key = wanted.key or lineage.key
        if signer is None or key not in lineage.keys:
            msg = (
                f"this node never had the key {key}; what another owner has signed beforehand is "
                "taken in with: parley node revoke --file FILE"
            )
            raise Conflict(msg)
        text = sign_revocation(signer, key)
        if wanted.prepare:
            return RevocationReport(key=key, statement=text, ended="nothing")
        # The others first: as soon as this node obeys, it stops.
        faults = await self._tell_all([text])
        report = await self.revoke(text, tell=False)
        told, untold = _hearers(faults)
        return report.model_copy(update={"told": told, "untold": untold})

    async def revoke(self, text: str, *, tell: bool = True) -> RevocationReport:
        """Take in a revocation that the owner of this node gives, and tell the others.

        :raises InvalidDocument: it is none.
        """
        try:
            revocation = read_revocation(text.strip())
        except InvalidStatementError as error:
            raise InvalidDocument([FieldFault("/statement", str(error))]) from None
        async with self._core.database.transaction() as connection:
            await nodes.forget_unsigned(connection, revocation.key)
        await self._directory.refresh()
        ended = await self._hear(revocation, also_unknown=True)
        faults = await self.tell() if tell else {}
        told, untold = _hearers(faults)
        return RevocationReport(
            key=revocation.key,
            statement=revocation.text,
            ended=ended.value,
            told=told,
            untold=untold,
        )

    async def revoke_node(self, name: str) -> RevocationReport:
        """Let the keys of another node count for nothing here any more, by the owner's word.

        What it has here ends. Nobody else is told: others believe a key's own statement only.

        :raises NotFound: there is no such node here.
        :raises Conflict: it is this node, or has no key.
        """
        await self._directory.refresh()
        node = self._directory.find(name)
        if node is None:
            raise NotFound(f"no node {name} is known here; see: parley node list")
        if node.is_self:
            raise Conflict(f"{name} is this node; its own key is revoked without a name")
        if node.kind is not NodeKind.PARLEY:
            raise Conflict(f"{name} has no key; to end what it has here: parley node remove {name}")
        lineage = self._directory.lineage(node.identity) or Lineage(node.identity)
        now = self._core.clock.now()

        async def keep(connection: Connection) -> None:
            for key in lineage.keys:
                await nodes.keep_revocation(connection, key, "", now, ends_node=True)

        why = revoked_on(self._core.settings.name)
        await self._removal.remove_for_reason(node.name, why, keep)
        await self._directory.refresh()
        log.warning("a node is revoked here", key=lineage.key, node=node.name)
        return RevocationReport(key=lineage.key, ended=Ruling.NODE.value)

    async def take_in_all(self, texts: Sequence[str]) -> None:
        """Take in what another node tells, and pass on what was new.

        :raises InvalidDocument: one of the texts is no revocation.
        """
        try:
            revocations = [read_revocation(text) for text in texts]
        except InvalidStatementError as error:
            raise InvalidDocument([FieldFault("/statements", str(error))]) from None
        await self._directory.refresh()
        for revocation in revocations:
            if self._directory.owner(revocation.key) is not None:
                await self._hear(revocation)

    async def _hear(self, revocation: Revocation, *, also_unknown: bool = False) -> Ruling:
        """Store a revocation that is new, and end what it ends; return what that was.

        The directory has been refreshed. A later key that has signed it is followed first: who was
        away may hear of its revoked predecessor before it hears of the key.
        """
        key, now = revocation.key, self._core.clock.now()
        identity = self._directory.owner(key)
        if self._directory.is_revoked(key):
            return Ruling.NOTHING
        if not revocation.is_by_itself:
            with contextlib.suppress(NotAuthenticated):  # it is heard as of a key not known here
                await self._successions.hear(str(revocation.signer))
        known = None if identity is None else self._directory.lineage(identity)
        ended = await self._ruling_on(revocation, known, now)
        ends_node = ended is Ruling.NODE or (ended is Ruling.NOTHING and revocation.is_by_itself)

        # What ends the node ends its earlier keys, too: none of them leads anywhere any more.
        earlier = (*revocation.signer.keys, *(known.keys if known else ())) if ends_node else ()

        async def keep(connection: Connection) -> None:
            for each in dict.fromkeys((key, *earlier)):
                await nodes.keep_revocation(
                    connection, each, revocation.text, now, ends_node=ends_node
                )

        node = None if identity is None else self._directory.by_identity(identity)
        if ended is Ruling.NODE and node is not None and not node.is_self:
            if also_unknown:  # nobody tells the node itself any more, once it is removed
                await self._tell(node, [revocation.text])
            why = revoked_itself(self._core.settings.name)
            await self._removal.remove_for_reason(node.name, why, keep)
        else:
            async with self._core.database.transaction() as connection:
                await keep(connection)
        await self._directory.refresh()
        log.warning("a key is revoked", key=key, node=node and node.name, ended=ended.value)
        return ended

    async def _ruling_on(self, revocation: Revocation, known: Lineage | None, now: int) -> Ruling:
        """Return what a revocation ends here, given when the node's successions were heard."""
        if known is None or known.identity == self._core.identity:
            return ruling(revocation, known, 0, now)
        async with self._core.database.transaction() as connection:
            heard_at = await nodes.successions_heard_at(connection, known.identity)
        place = known.keys.index(revocation.key)
        return ruling(revocation, known, heard_at[place] if place < len(heard_at) else 0, now)

    async def tell(self) -> dict[str, str | None]:
        """Tell the others what they have not heard; return why they cannot, None if they can."""
        async with self._core.database.connection() as connection:
            untold = await nodes.revocations_to_tell(connection)

        async def tell(known: KnownNode) -> str | None:
            batch = untold[known.identity][:REVOCATIONS_MAX]
            texts = list(dict.fromkeys(text for _, text in batch))
            fault = await self._tell(known, texts)
            if fault is None:
                async with self._core.database.transaction() as connection:
                    await nodes.note_revocations_told(connection, known.identity, batch[-1][0])
            return fault

        others = [each for each in self._directory.nodes_of_parley if each.identity in untold]
        faults = await asyncio.gather(*map(tell, others))
        return {known.name: fault for known, fault in zip(others, faults, strict=True)}

    async def _tell_all(self, texts: Sequence[str]) -> dict[str, str | None]:
        others = [each for each in self._directory.nodes_of_parley if not each.is_self]
        faults = await asyncio.gather(*(self._tell(known, texts) for known in others))
        return {known.name: fault for known, fault in zip(others, faults, strict=True)}

    async def _tell(self, known: KnownNode, texts: Sequence[str]) -> str | None:
        """Tell a node which keys are revoked; return why it has not heard, in a sentence."""
        if not has_feature(known.attributes, Feature.SUCCESSIONS):
            return "its program knows no revocations; its owner has to remove the node"
        peer = self._peers.client_of(known.identity, known.name, known.url, known.attributes)
        try:
            async with asyncio.timeout(_TOLD_WITHIN_S):
                await peer.revoke(texts)
        except TimeoutError:
            return "it does not answer"
        except ParleyError as error:
            return error.detail
        return None


def _hearers(
    faults: Mapping[str, str | None],
) -> tuple[tuple[str, ...], tuple[UntoldNode, ...]]:
    """Return the names of those who have heard, and the others with the reason."""
    told = tuple(name for name, fault in faults.items() if fault is None)
    return told, tuple(
        UntoldNode(name=name, reason=fault) for name, fault in faults.items() if fault is not None
    )
