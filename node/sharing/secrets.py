"""The store of the owner's secrets: added, listed without their values, and removed."""

from __future__ import annotations

from node.model.errors import Conflict, FieldFault, InvalidDocument, NotFound
from node.model.named_secrets import KeptSecret, purpose_of, user_refusal
from node.model.wire.secrets import Secret, SecretDocument, SecretTerms
from node.peers.directory import Directory
from node.store import secrets
from node.store.core import Core


class SecretStore:
    """The owner's secrets at this node."""

    def __init__(self, core: Core, directory: Directory) -> None:
        """Seal with the key of this host; leads are nodes of the directory."""
        self._core = core
        self._directory = directory

    async def add(self, document: SecretDocument) -> Secret:
        """Store a secret, or replace the one of its name if the document says so.

        :raises InvalidDocument: a lead is not known here.
        :raises Conflict: there is one of this name.
        """
        terms = SecretTerms.model_validate(document.model_dump(exclude={"value", "replace"}))
        terms = terms.model_copy(update={"leads": self._identities(terms)})
        sealed = self._core.sealing.seal(document.value, purpose_of(terms.name))
        now = self._core.clock.now()
        kept = KeptSecret(terms, sealed, now, now)
        async with self._core.database.transaction() as connection:
            if not await secrets.keep(connection, kept, replace=document.replace):
                msg = f"there is already a secret {terms.name}; replace it with: --replace"
                raise Conflict(msg)
            [stored] = await secrets.find_all(connection, [terms.name])
        return self._secret_for_people(stored)

    def _identities(self, terms: SecretTerms) -> tuple[str, ...]:
        found = []
        for place, word in enumerate(terms.leads):
            node = self._directory.find(word)
            if node is None or node.is_self:
                reason = f"{word} is not another node known here; see: parley node list"
                raise InvalidDocument([FieldFault(f"/leads/{place}", reason)])
            found.append(node.identity)
        return tuple(found)

    async def all(self) -> list[Secret]:
        """Return all secrets by name, without their values."""
        async with self._core.database.connection() as connection:
            return [self._secret_for_people(each) for each in await secrets.find_all(connection)]

    async def remove(self, name: str) -> None:
        """Remove a secret; runs of tasks that name it fail with that as their reason.

        :raises NotFound: there is none of this name.
        """
        async with self._core.database.transaction() as connection:
            if not await secrets.remove(connection, name):
                msg = f"there is no secret {name}; see: parley secret list"
                raise NotFound(msg)

    async def refusal(self, names: frozenset[str], user: str) -> str | None:
        """Return why a user with the role ``run`` may not use one of these; None if they may."""
        if not names:
            return None
        async with self._core.database.connection() as connection:
            found = {each.terms.name: each for each in await secrets.find_all(connection, names)}
        refusals = (user_refusal(name, found.get(name), user) for name in sorted(names))
        return next(filter(None, refusals), None)

    def _secret_for_people(self, kept: KeptSecret) -> Secret:
        names = {node.identity: node.name for node in self._directory.all}
        leads = tuple(names.get(lead, lead) for lead in kept.terms.leads)
        return Secret(
            **kept.terms.model_dump(exclude={"leads"}),
            leads=leads,
            created_at=kept.created_at,
            changed_at=kept.changed_at,
        )
