"""The users' client: the stream of events of a node (server-sent events)."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

from node.model.errors import PeerAnswered


@dataclass(frozen=True)
class ServerEvent:
    """One event: its number, by which a stream is resumed, its kind, and its members."""

    number: int
    kind: str
    body: dict[str, Any]


def parse_events(lines: Iterable[bytes]) -> Generator[ServerEvent, None, None]:
    """Yield the events of a stream, given its lines.

    :raises PeerAnswered: it has something else.
    """
    fields: dict[str, str] = {}
    for line in lines:
        text = line.decode(errors="replace").rstrip("\r\n")
        if text:
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            yield _event(fields)
        fields = {}


def _event(fields: dict[str, str]) -> ServerEvent:
    try:
        body = json.loads(fields["data"])
        return ServerEvent(int(fields["id"]), fields["event"], dict(body))
    except (KeyError, TypeError, ValueError) as error:
        msg = f"the node sent an event that cannot be read: {error!r}"
        raise PeerAnswered(msg) from error
