"""From where on this host others may have a part measured: what its owner allows, and what works.

Nobody is let into a namespace, or bound to an interface or address, that the owner has not named in
``PARLEY_CONTEXTS``. That is looked at when a task is introduced and again before its program
starts.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Mapping

from node.execution import host_sampling, netlink
from node.execution.process import NAMESPACES
from node.model.contexts import Context, ContextKind
from node.model.errors import HostError

SETTING = "PARLEY_CONTEXTS"


class Contexts:
    """The contexts of this host."""

    def __init__(self, allowed: Mapping[Context, str | None]) -> None:
        """``allowed``: each with the address by which others reach it, None to look for it."""
        self._allowed = allowed

    def why_not(self, context: Context) -> str | None:
        """Why nobody measures from there, and what the owner can do; None if somebody can."""
        if context not in self._allowed:
            named = ", ".join(map(str, self._allowed)) or "no context"
            return (
                f"measuring from {context} is not allowed here, {named} is; the owner of this "
                f"host can allow it: {SETTING}={context}"
            )
        return self._defect(context) or (
            None
            if self._address(context)
            else f"{context} has no address by which others reach it; the owner of this host can "
            f"name one: {SETTING}={context}=ADDRESS"
        )

    def addresses(self) -> dict[str, str]:
        """The address of each context from which one can measure."""
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
                return f"there is no interface {context.name} on this host"
            case ContextKind.ADDRESS:
                return _address_defect(context.name)

    def _address(self, context: Context) -> str | None:
        given = self._allowed[context]
        if given is not None:
            return given
        if context.kind is ContextKind.ADDRESS:
            return context.name
        with contextlib.suppress(HostError):
            found = host_sampling.in_namespace(
                context.namespace, lambda: netlink.addresses(context.device)
            )
            return str(found[0]) if found else None
        return None


def _namespace_defect(name: str) -> str | None:
    if not (NAMESPACES / name).exists():
        return f"there is no network namespace {name} on this host (ip netns add {name})"
    if shutil.which("nsenter") is None:
        return "nsenter is not installed; apt install util-linux"
    try:
        host_sampling.in_namespace(name, lambda: None)
    except HostError as fault:
        return f"{fault.detail}; the service needs CAP_SYS_ADMIN for it (see deploy/README.md)"
    return None


def _address_defect(address: str) -> str | None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as endpoint:
            endpoint.bind((address, 0))
    except OSError as fault:
        return f"{address} cannot be used on this host: {fault.strerror}"
    return None
