"""Secrets in specs on their way through this host: sealed when they come in, opened for the tool.

A literal that somebody posts is sealed before anything else sees the spec, and what another lead
tells is sealed when it is introduced. From then on only two have the text again: the tool that is
about to start (:meth:`SpecSecrets.opened_spec`), and the participant that needs it for its own tool
(``revealing`` in ``client/peers.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from node.execution.catalog import Capabilities
from node.model import secrets
from node.model.errors import FieldFault, HostError, InvalidDocument
from node.model.named_secrets import KeptSecret, SecretUse, purpose_of, use_refusal
from node.model.wire.participants import Introduction
from node.model.wire.tasks import TaskDocument
from node.plugins.contracts import Test
from node.store import secrets as store
from node.store.core import Core
from node.trust.sealing import SPEC, SealingKey


class SpecSecrets:
    """Seals and opens the secrets in specs of tests."""

    def __init__(self, core: Core, capabilities: Capabilities) -> None:
        self._core = core
        self._capabilities = capabilities

    @property
    def _key(self) -> SealingKey:
        return self._core.sealing

    def sealed_document(self, document: TaskDocument) -> TaskDocument:
        """Return a document whose literal secrets are sealed; a wrong one is returned as it is.

        :raises InvalidDocument: a value is the mark that stands for one that is not told, or it has
            to be named.
        """
        test = self._capabilities.tests.get(document.test.type)
        if test is None or not secrets.secret_fields(test.spec_model):
            return document
        self._capabilities.spec(test, document.test.spec)
        if literals := secrets.literals_in(test.spec_model, document.test.spec):
            reason = (
                "is written in the task; add it to the store of the owner (parley secret add NAME) "
                'and write {"secret": "NAME"}'
            )
            raise InvalidDocument([FieldFault(f"/test/spec{it}", reason) for it in literals])
        choice = document.test.model_copy(
            update={"spec": self.sealed_spec(test, document.test.spec)}
        )
        return document.model_copy(update={"test": choice})

    def sealed_spec(self, test: Test, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return a valid spec whose literal secrets are sealed.

        :raises InvalidDocument: a value is the mark that stands for one that is not told.
        """

        def sealed(value: Any) -> Any:
            if value == secrets.REDACTED:
                reason = (
                    f"{secrets.REDACTED} stands for a value that nobody is told, and there is none "
                    'here; write the value, or {"secret": "NAME"}'
                )
                raise InvalidDocument([FieldFault("/test/spec", reason)])
            return {"sealed": self._key.seal(value, SPEC)} if isinstance(value, str) else value

        return secrets.each_text(test.spec_model, spec, sealed)

    def sealed_stored_spec(
        self, test: str, spec: Mapping[str, Any], lead: str | None
    ) -> dict[str, Any]:
        """Return a spec that an earlier program stored in clear, sealed; ``lead`` if not this one.

        The spec of another lead is sealed for this host alone.
        """

        def sealed(value: Any) -> Any:
            if not isinstance(value, str):
                return value
            if lead is None:
                return {"sealed": self._key.seal(value, SPEC)}
            own = self._key.seal(value, _purpose_of_lead(lead))
            return {"sealed": own, "here": own}

        return self.each_text(test, spec, sealed)

    def each_text(
        self, test: str, spec: Mapping[str, Any], change: secrets.Change
    ) -> dict[str, Any]:
        """Return a spec in which ``change`` was applied to each text of its secret fields."""
        return secrets.each_text(self._capabilities.tests[test].spec_model, spec, change)

    def restored_document(self, document: TaskDocument, before: Mapping[str, Any]) -> TaskDocument:
        """Return an edit with the values of the spec before it where it has their mark.

        :raises InvalidDocument: it sends such a value elsewhere, or otherwise.
        """
        test = self._capabilities.tests.get(document.test.type)
        if test is None:
            return document
        spec = secrets.restored_spec(test.spec_model, document.test.spec, before, "/test/spec")
        choice = document.test.model_copy(update={"spec": spec})
        return document.model_copy(update={"test": choice})

    def accepted_introduction(self, lead: str, introduction: Introduction) -> Introduction:
        """Return the introduction of another lead with what it tells sealed by this host."""
        texts = introduction.secrets or {}
        spec = secrets.resealed_spec(
            introduction.spec, texts, lambda text: self._key.seal(text, _purpose_of_lead(lead))
        )
        return introduction.model_copy(update={"spec": spec, "secrets": None})

    def names_in(self, test: str, spec: Mapping[str, Any]) -> frozenset[str]:
        """Return the names of the owner's secrets that a spec uses."""
        known = self._capabilities.tests.get(test)
        return frozenset() if known is None else secrets.names_in(known.spec_model, spec)

    async def opened_spec(
        self, test: Test, spec: Mapping[str, Any], use: SecretUse
    ) -> dict[str, Any]:
        """Return a spec with the secrets themselves, for the tool.

        :raises HostError: one cannot be had, or is not for this run.
        """
        stored = await self._find_secrets(secrets.names_in(test.spec_model, spec), use)

        def opened(value: Any) -> Any:
            if (name := secrets.name_of(value)) is not None:
                return self._open_text(f"the secret {name}", stored[name].sealed, purpose_of(name))
            # An earlier program stored literals.
            return self._own_text(value, use) if secrets.is_sealed(value) else value

        return secrets.each_text(test.spec_model, spec, opened)

    async def _find_secrets(self, names: Collection[str], use: SecretUse) -> dict[str, KeptSecret]:
        """Return by name the secrets that a run uses.

        :raises HostError: there is none of a name, or it is not for this run.
        """
        if not names:
            return {}
        async with self._core.database.connection() as connection:
            stored = {it.terms.name: it for it in await store.find_all(connection, names)}
        for name in sorted(names):
            if (refusal := use_refusal(name, stored.get(name), use)) is not None:
                raise HostError(refusal)
        return stored

    def _own_text(self, value: Mapping[str, str], use: SecretUse) -> str:
        what = "a secret of the task"
        if use.lead is None:
            return self._open_text(what, value["sealed"], SPEC)
        if "here" not in value:
            raise HostError(f"{what} was not told by its lead; give it again there")
        return self._open_text(what, value["here"], _purpose_of_lead(use.lead))

    def _open_text(self, what: str, sealed: str, purpose: str) -> str:
        try:
            return self._key.open(sealed, purpose)
        except HostError as error:
            raise HostError(f"{what} cannot be read: {error.detail}") from error


def _purpose_of_lead(lead: str) -> str:
    return f"introduced/{lead}"
