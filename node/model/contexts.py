"""From where on its host a participant measures: a namespace, an interface, an address. Pure.

Written ``namespace:wa``, ``interface:eth1``, ``address:192.0.2.7``. Which of them others may ask
for is the owner's to say (``PARLEY_CONTEXTS``); the node's card tells each with the address by
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

ATTRIBUTE = "context:"
"""``context:namespace:wa`` of a card is the address of that context."""

CONTEXTS_MAX = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,30}", re.ASCII)


class ContextKind(StrEnum):
    """What a context is."""

    NAMESPACE = "namespace"
    INTERFACE = "interface"
    ADDRESS = "address"


@dataclass(frozen=True)
class Context:
    """One of them; ``str()`` is how it is written."""

    kind: ContextKind
    name: str

    def __str__(self) -> str:
        """``interface:eth1``."""
        return f"{self.kind}:{self.name}"

    @property
    def namespace(self) -> str | None:
        """The name of the namespace to enter, if it is one."""
        return self.name if self.kind is ContextKind.NAMESPACE else None

    @property
    def device(self) -> str | None:
        """The interface to be bound to, if it is one."""
        return self.name if self.kind is ContextKind.INTERFACE else None

    @property
    def bound(self) -> bool:
        """Whether the tool itself must do something for it; a namespace is entered before it."""
        return self.kind is not ContextKind.NAMESPACE


def parse(text: str) -> Context:
    """A context as it is written.

    :raises ValueError: it is none; says how one is written.
    """
    word, colon, name = text.partition(":")
    if not colon or word not in set(ContextKind):
        msg = f"{text[:80]!r} is no context; write namespace:NAME, interface:NAME or address:IP"
        raise ValueError(msg)
    kind = ContextKind(word)
    if kind is ContextKind.ADDRESS:
        try:
            address = ipaddress.ip_address(name.replace("%", "/"))  # none with a scope
        except ValueError:
            msg = f"{name[:80]!r} is not an IP address"
            raise ValueError(msg) from None
        return Context(kind, str(address))
    if _NAME.fullmatch(name) is None:
        msg = (
            f"{name[:80]!r} cannot be the name of a context: letters, digits, '.', '_' and '-', "
            "31 at most, and a letter or digit first"
        )
        raise ValueError(msg)
    return Context(kind, name)


ContextWord = Annotated[
    str,
    AfterValidator(lambda text: str(parse(text))),
    Field(max_length=100, examples=["namespace:wa", "interface:eth1", "address:192.0.2.7"]),
]
"""A context as it is written, in documents."""


def offered(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The contexts that a node's card offers, each with its address."""
    return {
        name.removeprefix(ATTRIBUTE): str(address)
        for name, address in attributes.items()
        if name.startswith(ATTRIBUTE)
    }
