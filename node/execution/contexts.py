"""The measurement contexts of this host: which ones its owner allows to others, and which work.

A part may enter a namespace, or be bound to an interface or address, only if the owner lists it in
``PARLEY_CONTEXTS``. This is checked when a task is introduced, and again before its program starts.
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

SETTING = "PARLEY_CONTEXTS"


class Contexts:
    """The contexts of this host."""

    def __init__(self, allowed: Mapping[Context, str | None]) -> None:
        """``allowed``: contexts with the address by which others reach them; None to detect it."""
        self._allowed = allowed

    def why_not(self, context: Context) -> str | None:
        """Return why a context cannot be used, and what the owner can do; None if it can."""
        if context not in self._allowed:
            allowed = ", ".join(map(str, self._allowed)) or "no context"
            return (
                f"measuring from {context} is not allowed here (allowed: {allowed}); the owner of "
                f"this host can allow it: {SETTING}={context}"
            )
        return self._defect(context) or (
            None
            if self._address(context)
            else f"{context} has no address by which others reach it; the owner of this host can "
            f"set one: {SETTING}={context}=ADDRESS"
        )

    def addresses(self) -> dict[str, str]:
        """Return the usable contexts, each with its address."""
        return {
            str(context): address
            for context in self._allowed
            if self._defect(context) is None and (address := self._address(context))
        }

    def _defect(self, context: Context) -> str | None:
        match context.kind:
            case ContextKind.NAMESPACE:
                return _namespace_defect(context.name)
            case ContextKind.INTERFACE:
                with contextlib.suppress(OSError):
                    socket.if_nametoindex(context.name)
                    return None
                return f"this host has no interface {context.name}"
            case ContextKind.ADDRESS:
                return _address_defect(context.name)

    def _address(self, context: Context) -> str | None:
        configured = self._allowed[context]
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


def _namespace_defect(name: str) -> str | None:
    if not (NAMESPACES / name).exists():
        return f"this host has no network namespace {name}; create it: ip netns add {name}"
    if shutil.which("nsenter") is None:
        return "nsenter is not installed; apt install util-linux"
    try:
        host_sampling.in_namespace(name, lambda: None)
    except HostError as fault:
        needed = "the service needs CAP_SYS_ADMIN for it (see docs/how-to/contexts.md)"
        return f"{fault.detail}; {needed}"
    return None


def _address_defect(address: str) -> str | None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as endpoint:
            endpoint.bind((address, 0))
    except OSError as fault:
        return f"{address} cannot be used on this host: {fault.strerror}"
    return None
