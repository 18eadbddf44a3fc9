"""Keys that are replaced: this node's own, and those of others, which it follows.

Whatever a node sends carries the lineage of its key (``node/trust/lineage.py``). So a node needs no
message of its own to tell that it was rekeyed, and a node that was away learns it from the first
request or answer that reaches it. What is followed is written before the request is looked at.

This node's own key is replaced by one rename of its file, and that is the whole decision; its row
in the database follows, here or at the next start.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

import structlog

from node.client.peers import Peers
from node.model.errors import Conflict, HostError, NotAuthenticated, NotReady, ParleyError
from node.model.features import Feature, has_feature
from node.model.times import to_the_second
from node.peers.directory import Directory
from node.runtime.threads import aside
from node.store import nodes, notices
from node.store.core import Core
from node.store.database import Connection
from node.store.nodes import KnownNode
from node.trust.identities import fingerprint
from node.trust.key_files import KeyFile
from node.trust.lineage import FIRST_INSTANT, InvalidLineageError, Lineage, lineage_of, read_lineage

_TOLD_WITHIN_S = 10.0
"""Others that answer later learn the new key from the next message."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Rekeyed:
    """A new key of this node, who knows it, and why others do not know it yet."""

    lineage: Lineage
    told: tuple[str, ...]
    untold: dict[str, str]


class Successions:
    """Follows the keys of other nodes, and replaces the one of this node."""

    def __init__(
        self, core: Core, directory: Directory, peers: Peers, key: KeyFile | None = None
    ) -> None:
        """Without a ``key`` this node's own key stays as it is."""
        self._core = core
        self._directory = directory
        self._peers = peers
        self._key = key
        self._refused: set[str] = set()

    def keys(self, identity: str) -> tuple[str, ...]:
        """Return the keys of a node that count now: the one of today, and one just replaced.

        Where only revoked ones are known, it is the latest of these: a node that answers with it
        is refused by what it signs, and one that was rekeyed shows the later key.
        """
        lineage = self._directory.lineage(identity) or Lineage(identity)
        now = self._core.clock.now()
        counting = tuple(
            key
            for key in reversed(lineage.keys)
            if self._directory.counts(identity, key, now) and not self._directory.is_revoked(key)
        )
        return counting or (lineage.key,)

    async def admit(self, lineage: Lineage) -> None:
        """Return if a node that signs with the last key of this lineage is believed.

        :raises NotAuthenticated: the key was replaced or is revoked, or two keys follow one.
        """
        await self.hear(str(lineage))
        self._directory.signer(lineage.key, self._core.clock.now())

    async def hear(self, text: str) -> None:
        """Take in the lineage that a node tells: follow it if it goes on from the known one.

        :raises NotAuthenticated: it is none, or goes on from a key that has another successor.
        """
        known = self._directory.lineage(text.partition(" ")[0])
        if known is None or str(known) == text:
            return
        try:
            told = read_lineage(text)
        except InvalidLineageError as error:
            raise NotAuthenticated(f"the lineage of the key is not valid: {error}") from None
        if known.continues(told):
            return
        try:
            self._require_sound(known, told)
        except NotAuthenticated as error:
            await self._doubt(known.identity, text, error.detail)
            raise
        async with self._core.database.transaction() as connection:
            before, now = str(known) if known.successions else None, self._core.clock.now()
            heard_at = [now] * (len(told.successions) - len(known.successions))
            followed = await nodes.keep_lineage(connection, known.identity, before, text, heard_at)
            name = self._directory.by_identity(known.identity).name
            await notices.notify(connection, "node", name, "rekeyed")
        await self._directory.refresh()
        if followed:
            log.info("a node has another key", node=name, key=told.key)

    def _require_sound(self, known: Lineage, told: Lineage) -> None:
        name = self._directory.by_identity(known.identity).name
        signer = self._core.signer
        if known.identity == self._core.identity and signer and signer.lineage != told:
            raise NotAuthenticated("somebody says that this node has another key than its own")
        if not told.continues(known):
            at = next(n for n, key in enumerate(known.keys) if told.keys[n : n + 1] != (key,))
            msg = (
                f"two keys claim to follow the key {fingerprint(known.keys[at - 1])} of {name}: "
                f"{fingerprint(known.keys[at])}, which is known here, and "
                f"{fingerprint(told.keys[at])}. So two have that key. Ask the owner of {name} by "
                f"another way, and if the other one is right: parley node remove {name}, and then "
                "parley node add URL --identity KEY"
            )
            raise NotAuthenticated(msg)
        self._directory.require_unrevoked(told)
        for key in told.keys:
            owner = self._directory.owner(key)
            if owner not in (None, known.identity):
                msg = f"the key {fingerprint(key)} of {name} is that of another node"
                raise NotAuthenticated(msg)

    async def _doubt(self, identity: str, text: str, reason: str) -> None:
        """Show in the list of nodes that a lineage is not believed; log it once."""
        if text in self._refused or len(self._refused) >= 1000:  # noqa: PLR2004 - of whoever asks
            return
        self._refused.add(text)
        log.warning("a key is not believed", reason=reason)
        async with self._core.database.transaction() as connection:
            await nodes.note_doubt(connection, identity, reason)

    async def keep_own(self, connection: Connection) -> None:
        """Write into the database which key this node has, by the file.

        :raises HostError: the database knows a later key than the file.
        """
        if self._core.signer is None:
            return
        text, own = (
            await nodes.lock_lineage(connection, self._core.identity),
            self._core.signer.lineage,
        )
        stored = lineage_of(self._core.identity, text)
        if not own.continues(stored):
            at = to_the_second(stored.successions[-1].at)
            msg = (
                f"the key of this node was replaced at {at}, and the file node.pem has an earlier "
                f"one than {stored.key}, with which no other node speaks any more; bring back the "
                "latest node.pem, from a backup that was made after that instant"
            )
            raise HostError(msg)
        if own != stored:
            heard_at = [each.at for each in own.successions[len(stored.successions) :]]
            await nodes.keep_lineage(connection, own.identity, text, str(own), heard_at)

    async def rekey(self) -> Rekeyed:
        """Replace the key of this node, and tell those who can be reached at once.

        :raises Conflict: this node has no file with a key, or it was replaced too often.
        :raises NotReady: its clock may be wrong, by which others count the replaced key.
        """
        if self._key is None:
            raise Conflict("this node has no file with a key, which could be replaced")
        if self._core.steps.doubtful or self._core.clock.now() < FIRST_INSTANT:
            said = to_the_second(self._core.clock.now())
            msg = (
                f"this host's clock says {said}, and may be wrong; by it other nodes would count "
                "how long the replaced key is still good. Set it right, and repeat the command"
            )
            raise NotReady(msg)
        async with self._core.database.transaction() as connection:
            await nodes.lock(connection, self._core.identity)  # one after the other
            await aside(partial(self._key.replace, self._core.clock.now()), "write the key")
            await self.keep_own(connection)
            name = self._directory.self.name
            await notices.notify(connection, "node", name, "rekeyed")
        await self._directory.refresh()
        lineage = self._key.current.lineage
        log.info("this node has another key", key=lineage.key)
        others = [known for known in self._directory.nodes_of_parley if not known.is_self]
        faults = await asyncio.gather(*map(self._tell, others))
        untold = {
            known.name: fault
            for known, fault in zip(others, faults, strict=True)
            if fault is not None
        }
        told = tuple(known.name for known in others if known.name not in untold)
        return Rekeyed(lineage, told, untold)

    async def _tell(self, known: KnownNode) -> str | None:
        """Have another node hear this one's lineage; return why it did not, in a sentence."""
        peer = self._peers.client_of(known.identity, known.name, known.url, known.attributes)
        try:
            async with asyncio.timeout(_TOLD_WITHIN_S):
                await peer.limits()
        except TimeoutError:
            return "it does not answer; it learns the key when it does"
        except ParleyError as error:
            if not has_feature(known.attributes, Feature.SUCCESSIONS):
                return "its program follows no keys; its owner has to add this node again"
            return error.detail
        return None
