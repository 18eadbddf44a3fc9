"""Measurement contexts: the namespace, interface, or address a participant measures from. Pure.

They are written ``namespace:wa``, ``interface:eth1``, ``address:192.0.2.7``. The owner of a node
allows contexts to others with ``PARLEY_CONTEXTS``; the node's card lists each with the address by
which others reach a measurement there, as the attribute ``context:namespace:wa``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from node.model.wire.fields import is_host

ATTRIBUTE = "context:"
"""Prefix of card attributes; the value of ``context:namespace:wa`` is that context's address."""

CONTEXTS_MAX = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,30}", re.ASCII)


class ContextKind(StrEnum):
    """The kinds of contexts."""

    NAMESPACE = "namespace"
    INTERFACE = "interface"
    ADDRESS = "address"


@dataclass(frozen=True)
class Context:
    """A context; ``str()`` returns its written form."""

    kind: ContextKind
    name: str

    def __str__(self) -> str:
        """Return the written form, such as ``interface:eth1``."""
        return f"{self.kind}:{self.name}"

    @property
    def namespace(self) -> str | None:
        """The network namespace to enter; None for other kinds."""
        return self.name if self.kind is ContextKind.NAMESPACE else None

    @property
    def device(self) -> str | None:
        """The interface to bind to; None for other kinds."""
        return self.name if self.kind is ContextKind.INTERFACE else None

    @property
    def bound(self) -> bool:
        """True if the tool must bind to it; a namespace is entered before the tool starts."""
        return self.kind is not ContextKind.NAMESPACE


def parse(text: str) -> Context:
    """Parse the written form of a context.

    :raises ValueError: the text is not a context; the message shows the syntax.
    """
    word, colon, name = text.partition(":")
    if not colon or word not in set(ContextKind):
        msg = f"{text[:80]!r} is not a context; write namespace:NAME, interface:NAME or address:IP"
        raise ValueError(msg)
    kind = ContextKind(word)
    if kind is ContextKind.ADDRESS:
        try:
            address = ipaddress.ip_address(name.replace("%", "/"))  # refuse scopes (fe80::1%eth0)
        except ValueError:
            msg = f"{name[:80]!r} is not an IP address"
            raise ValueError(msg) from None
        return Context(kind, str(address))
    if _NAME.fullmatch(name) is None:
        msg = (
            f"{name[:80]!r} is not a valid context name; use letters, digits, '.', '_' and '-', "
            "at most 31, starting with a letter or digit"
        )
        raise ValueError(msg)
    return Context(kind, name)


ContextWord = Annotated[
    str,
    AfterValidator(lambda text: str(parse(text))),
    Field(max_length=100, examples=["namespace:wa", "interface:eth1", "address:192.0.2.7"]),
]
"""The written form of a context, for fields of documents."""


def offered_contexts(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return the contexts that a node's card offers, with the address of each.

    A context whose address is none is left out: it would become an argument of programs.
    """
    return {
        name.removeprefix(ATTRIBUTE): address
        for name, address in attributes.items()
        if name.startswith(ATTRIBUTE) and is_host(address)
    }
