"""The measurement contexts of this host: which ones its owner allows to others, and which work.

A part may enter a namespace, or be bound to an interface, only if the owner lists it in
``PARLEY_CONTEXTS``. The addresses of the host itself need no word, unless the owner lists some:
then those alone may be measured from. They are told to nobody. All of this is checked when a task
is introduced, and again before its program starts.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Mapping

from node.execution import host_sampling, netlink
from node.execution.tool_terms import NAMESPACES
from node.model.contexts import Context, ContextKind
from node.model.errors import HostError
from node.model.reason import Reason
from node.model.reasons import (
    address_unusable,
    context_not_allowed,
    context_without_address,
    namespace_closed,
    no_such_interface,
    no_such_namespace,
    program_not_installed,
)


class Contexts:
    """The contexts of this host."""

    def __init__(self, allowed: Mapping[Context, str | None]) -> None:
        """``allowed``: contexts with the address by which others reach them; None to detect it."""
        self._allowed = allowed
        self._lists_addresses = any(it.kind is ContextKind.ADDRESS for it in allowed)

    def refusal(self, context: Context) -> Reason | None:
        """Return why a context cannot be used, and what the owner can do; None if it can."""
        if context not in self._allowed and not self._is_own(context):
            allowed = ", ".join(map(str, self._allowed)) or "no context"
            return context_not_allowed(str(context), allowed)
        if (defect := self._defect(context)) is not None:
            return defect
        return None if self._address(context) else context_without_address(str(context))

    def addresses(self) -> dict[str, str]:
        """Return the usable contexts, each with its address."""
        return {
            str(context): address
            for context in self._allowed
            if self._defect(context) is None and (address := self._address(context))
        }

    def _is_own(self, context: Context) -> bool:
        """Return whether it is an address of this host that the owner has not reserved."""
        if context.kind is not ContextKind.ADDRESS or self._lists_addresses:
            return False
        return netlink.has_address(context.name)

    def _defect(self, context: Context) -> Reason | None:
        match context.kind:
            case ContextKind.NAMESPACE:
                return _namespace_defect(context.name)
            case ContextKind.INTERFACE:
                with contextlib.suppress(OSError):
                    socket.if_nametoindex(context.name)
                    return None
                return no_such_interface(context.name)
            case ContextKind.ADDRESS:
                return _address_defect(context.name)

    def _address(self, context: Context) -> str | None:
        configured = self._allowed.get(context)
        if configured is not None:
            return configured
        if context.kind is ContextKind.ADDRESS:
            return context.name
        with contextlib.suppress(HostError):
            addresses = host_sampling.in_namespace(
                context.namespace, lambda: netlink.addresses(context.device)
            )
            return str(addresses[0]) if addresses else None
        return None


def _namespace_defect(name: str) -> Reason | None:
    if not (NAMESPACES / name).exists():
        return no_such_namespace(name)
    if shutil.which("nsenter") is None:
        return program_not_installed("nsenter", "util-linux")
    try:
        host_sampling.in_namespace(name, lambda: None)
    except HostError as fault:
        return namespace_closed(fault.detail)
    return None


def _address_defect(address: str) -> Reason | None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as endpoint:
            endpoint.bind((address, 0))
    except OSError as fault:
        return address_unusable(address, fault.strerror or "")
    return None
