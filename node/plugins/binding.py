"""Binding a client tool to an interface or an address of its own host. Pure.

A context's network namespace is entered before the tool starts; the tool handles the rest. Each
tool lists the kinds it can be bound to (:class:`node.plugins.contracts.Bindable`).
"""

from __future__ import annotations

import ipaddress

from node.model.contexts import Context, ContextKind
from node.model.errors import FieldFault, InvalidDocument
from node.model.task_terms import TaskTerms
from node.model.wire.fields import is_address
from node.plugins.contracts import PartContext

EITHER = frozenset({"interface", "address"})
"""The kinds that most tools can be bound to."""


def binding_arguments(part: PartContext, interface: str, address: str) -> list[str]:
    """Return the option and its argument: option ``interface`` or ``address``; empty if unbound."""
    context = _bound_context(part)
    if context is None:
        return []
    return [interface if context.kind is ContextKind.INTERFACE else address, context.name]


def version_of(part: PartContext) -> int | None:
    """Return the IP version of the spec, or else that of the address to bind to."""
    version: int | None = part.spec.ip_version
    context = _bound_context(part)
    if version is None and context is not None and context.kind is ContextKind.ADDRESS:
        return ipaddress.ip_address(context.name).version
    return version


def check_version(terms: TaskTerms) -> None:
    """Check that all hosts of a task have the IP version of its spec, if it names one.

    The first participant, which sends, is exempt: it may have more addresses than the known one.

    :raises InvalidDocument: a host has the other version, so that nothing could be sent there.
    """
    version = terms.spec.get("ip_version")
    for host, address in terms.addresses.items():
        if version is None or address == terms.participants[0].address or not is_address(address):
            continue
        if ipaddress.ip_address(address).version != version:
            where = address if host == address else f"{host}, {address},"
            fault = f"is {version}, but {where} is not an IPv{version} address; leave it out"
            raise InvalidDocument([FieldFault("/test/spec/ip_version", fault)])


def source_arguments(part: PartContext) -> dict[str, str | int | None]:
    """Return the binding as arguments for our own programs, null where there is none."""
    context = _bound_context(part)
    return {
        "device": None if context is None else context.device,
        "source": None if context is None or context.device else context.name,
        "ip_version": version_of(part),
    }


def _bound_context(part: PartContext) -> Context | None:
    return part.context if part.context is not None and part.context.bound else None
