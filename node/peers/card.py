"""This node's card: its name, address, and the attributes by which pools choose nodes.

Attributes have three sources; a later one overrides the earlier ones: the settings, ``parley node
set``, and the host itself (``tool:iperf3`` and the like). Other nodes fetch the card periodically
(``monitor.py``); they are not notified of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from node.execution.catalog import Capabilities
from node.model.contexts import ATTRIBUTE
from node.model.errors import FieldFault, InvalidDocument
from node.model.features import ATTRIBUTE as FEATURE
from node.model.features import TOOL, Feature
from node.model.wire.nodes import ATTRIBUTES_MAX, DERIVED, NodeCard
from node.runtime.version import program_version
from node.store import nodes, notices
from node.store.core import Core
from node.store.database import Connection

VERSION = "version"
"""The attribute with the version of the program."""

_SHOWN = (TOOL, ATTRIBUTE, FEATURE, VERSION)


class OwnCard:
    """This node's card, in memory and in the database."""

    def __init__(
        self,
        core: Core,
        capabilities: Capabilities,
        contexts: Callable[[], Mapping[str, str]],
    ) -> None:
        """``contexts()`` returns the other places to measure from here, with their addresses."""
        self._contexts = contexts
        self._database = core.database
        self._clock = core.clock
        self._settings = settings = core.settings
        self._capabilities = capabilities
        self.current = NodeCard(
            identity=core.identity,
            name=settings.name,
            url=None if settings.pull else settings.public_url,
            address=settings.measurement_address,
            version=program_version(),
            lanes=settings.lanes,
        )

    async def write(self, connection: Connection) -> bool:
        """Write the current card to the database; return whether it changed."""
        by_hand = await nodes.attributes_set_by_hand(connection)
        attributes = {**self._settings.attributes, **by_hand, **self._host_attributes()}
        card = self.current.model_copy(update={"attributes": attributes})
        changed, self.current = card != self.current, card
        await nodes.keep_self(connection, card, self._clock.now())
        return changed

    def _host_attributes(self) -> dict[str, bool | str]:
        tools = self._capabilities.tools
        there = {
            name: self._capabilities.missing_program(tools[name]) is None for name in sorted(tools)
        }
        return {
            **{f"{TOOL}{name}": is_there for name, is_there in there.items()},
            **{f"{ATTRIBUTE}{name}": address for name, address in self._contexts().items()},
            **{f"{FEATURE}{name}": True for name in Feature},
            VERSION: program_version(),
        }

    async def look_again(self) -> None:
        """Rewrite the card if tools, contexts, or addresses of the host have changed."""
        attributes = self.current.attributes.items()
        if {
            name: value for name, value in attributes if name.startswith(_SHOWN)
        } != self._host_attributes():
            async with self._database.transaction() as connection:
                await self._rewrite(connection)

    async def set(self, attributes: Mapping[str, Any]) -> None:
        """Set these attributes; None removes one that was set.

        :raises InvalidDocument: an attribute cannot be set, or there would be too many.
        """
        faults = [
            FieldFault(f"/attributes/{name}", f"is what the host is, not set by hand; {_WHERE}")
            for name in attributes
            if name in DERIVED or name.startswith(_SHOWN)
        ]
        if faults:
            raise InvalidDocument(faults)
        async with self._database.transaction() as connection:
            there = await nodes.attributes_set_by_hand(connection)
            wanted = {**there, **attributes}
            remaining = {name: value for name, value in wanted.items() if value is not None}
            if len(remaining) > ATTRIBUTES_MAX - len(self._host_attributes()) - len(
                self._settings.attributes
            ):
                raise InvalidDocument([FieldFault("/attributes", "are too many; take some back")])
            await nodes.keep_attributes_set_by_hand(connection, remaining)
            await self._rewrite(connection)

    async def _rewrite(self, connection: Connection) -> None:
        await self.write(connection)
        await notices.notify(connection, "node", self.current.name, "changed")


_WHERE = (
    "name and lanes are settings of the node, tool:… follows what is installed, context:… what its "
    "owner allows (PARLEY_CONTEXTS), version and feature:… the program"
)
