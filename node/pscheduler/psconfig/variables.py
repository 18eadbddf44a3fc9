"""Variables of templates, such as ``{% address[0] %}``. Pure."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

JqProgram = Callable[[str, Any], Any]
"""Applies a program of jq to a document, and returns its first output; None if there is none."""

_VARIABLE = re.compile(r"\{%\s((?:(?!\s%\}).)*)\s%\}", re.DOTALL)
_HOST = re.compile(r"(?<=://)[0-9A-Fa-f:.]+")
"""A host of a URL that may be an IPv6 address, which has brackets there."""
_INDEXED = re.compile(r"(address|pscheduler_address|lead_bind_address)\[(\d{1,4})\]")


class VariableError(ValueError):
    """A variable that cannot be replaced; the message is a sentence."""


class Addressed(Protocol):
    """An address of a template, with the others that a variable may ask for."""

    @property
    def address(self) -> str:
        """The address to and from which is measured, as the template writes it."""
        ...

    @property
    def pscheduler(self) -> str | None:
        """The address of its server, if it is another one."""
        ...

    @property
    def lead_bind(self) -> str | None:
        """The address from which its server asks others, if it is another one."""
        ...


@dataclass(frozen=True)
class Scope:
    """The values of the variables of one task.

    ``flip`` is whether another address schedules it than the template wants, ``facts`` what
    programs of jq get.
    """

    addresses: Sequence[Addressed]
    scheduled_by: Addressed
    flip: bool
    facts: Any
    jq: JqProgram

    def value(self, variable: str) -> Any:
        """Return the value of a variable.

        :raises VariableError: there is no such variable, or not for this task.
        """
        if indexed := _INDEXED.fullmatch(variable):
            return self._indexed_value(indexed[1], int(indexed[2]))
        match variable.split(maxsplit=1):
            case ["scheduled_by_address"]:
                return self.scheduled_by.address
            case ["flip"]:
                return self.flip
            case ["localhost"]:
                return self.scheduled_by.address if self.flip else "localhost"
            case ["jq", program]:
                return self.jq(program, self.facts)
            case _:
                msg = f"there is no variable {{% {variable} %}}"
                raise VariableError(msg)

    def _indexed_value(self, kind: str, index: int) -> str:
        if index >= len(self.addresses):
            count = len(self.addresses)
            msg = f"{{% {kind}[{index}] %}}: its group gives {count} addresses to a task"
            raise VariableError(msg)
        given = self.addresses[index]
        if kind == "pscheduler_address":
            return _bracketed_host(given.pscheduler or given.address)
        return (given.lead_bind if kind == "lead_bind_address" else None) or given.address


def expand(value: Any, scope: Scope) -> Any:
    """Return a document with its variables replaced, in names of members, too.

    A text that is one variable becomes its value; within a text it becomes a part of the text, with
    brackets if it is an IPv6 address in a URL.

    :raises VariableError: a variable cannot be replaced.
    """
    match value:
        case str():
            if whole := _VARIABLE.fullmatch(value.strip()):
                return scope.value(whole[1].strip())
            text = _VARIABLE.sub(lambda found: _value_text(scope.value(found[1].strip())), value)
            return _HOST.sub(lambda found: _bracketed_host(found[0]), text)
        case dict():
            return {expand(name, scope): expand(child, scope) for name, child in value.items()}
        case list():
            return [expand(child, scope) for child in value]
        case _:
            return value


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _bracketed_host(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host  # noqa: PLR2004
    except ValueError:
        return host
