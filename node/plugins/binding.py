"""How a tool that asks hosts is bound to an interface or an address of its own host. Pure.

The namespace of a context is entered before the tool is started; of the rest it is told here. Which
kinds it can be bound to it says itself (:class:`node.plugins.contracts.Bindable`).
"""

from __future__ import annotations

import ipaddress

from node.model.contexts import Context, ContextKind
from node.plugins.contracts import PartContext

EITHER = frozenset({"interface", "address"})
"""What most tools can be bound to."""


def bound(part: PartContext, interface: str, address: str) -> list[str]:
    """The option and its word, if binding is asked: ``interface`` for one, ``address`` for one."""
    asked = _asked(part)
    if asked is None:
        return []
    return [interface if asked.kind is ContextKind.INTERFACE else address, asked.name]


def version_of(part: PartContext) -> int | None:
    """The version of IP: as the spec says, else that of an address to be bound to."""
    version: int | None = part.spec.ip_version
    asked = _asked(part)
    if version is None and asked is not None and asked.kind is ContextKind.ADDRESS:
        return ipaddress.ip_address(asked.name).version
    return version


def leaving(part: PartContext) -> dict[str, str | int | None]:
    """The arguments by which our own programs are told of it: what is not asked is null."""
    asked = _asked(part)
    return {
        "device": None if asked is None else asked.device,
        "source": None if asked is None or asked.device else asked.name,
        "ip_version": version_of(part),
    }


def _asked(part: PartContext) -> Context | None:
    return part.context if part.context is not None and part.context.bound else None
