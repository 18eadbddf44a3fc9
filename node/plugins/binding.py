"""How a tool that asks hosts is bound to an interface or an address of its own host. Pure.

The namespace of a context is entered before the tool is started; of the rest it is told here. Which
kinds it can be bound to it says itself (:class:`node.plugins.contracts.Bindable`).
"""

from __future__ import annotations

import ipaddress

from node.model.contexts import Context, ContextKind
from node.model.errors import FieldFault, InvalidDocument
from node.model.wire.fields import is_address
from node.model.wire.participants import Introduction
from node.plugins.contracts import PartContext

EITHER = frozenset({"interface", "address"})
"""What most tools can be bound to."""


def binding_arguments(part: PartContext, interface: str, address: str) -> list[str]:
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


def check_version(asked: Introduction) -> None:
    """Nothing, if all hosts of a task have the version of IP that its spec asks for, if any.

    Who asks, the first participant, may well have more addresses than the one it is known by.

    :raises InvalidDocument: one is of the other version: nothing could be sent there.
    """
    version = asked.spec.get("ip_version")
    for host, address in asked.addresses.items():
        if version is None or address == asked.participants[0].address or not is_address(address):
            continue
        if ipaddress.ip_address(address).version != version:
            where = address if host == address else f"{host}, {address},"
            said = f"is {version}, but {where} is no address of IPv{version}; leave it out"
            raise InvalidDocument([FieldFault("/test/spec/ip_version", said)])


def source_arguments(part: PartContext) -> dict[str, str | int | None]:
    """The arguments by which our own programs are told of it: what is not asked is null."""
    asked = _asked(part)
    return {
        "device": None if asked is None else asked.device,
        "source": None if asked is None or asked.device else asked.name,
        "ip_version": version_of(part),
    }


def _asked(part: PartContext) -> Context | None:
    return part.context if part.context is not None and part.context.bound else None
