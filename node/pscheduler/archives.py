"""Archive specs of pScheduler, and what they become here. Pure.

``to_parley`` translates a spec into an archive of a task. What has no counterpart is refused with a
sentence; what is done differently, and loses nothing, is told in ``notes``.
"""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import ValidationError

from node.model import times
from node.model.urls import split_url
from node.model.wire.archives import TTL_MAX, ArchiveChoice
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.validation import faults_of
from node.pscheduler.refusals import Refusal

Document = dict[str, Any]

BAD, CANNOT = 400, 422
SCHEMA_MAX = 3
ARCHIVERS: Mapping[str, int] = {
    "bitbucket": 1,
    "failer": 2,
    "http": 4,
    "kafka": 2,
    "postgresql": 1,
    "rabbitmq": 2,
    "syslog": 1,
    "tcp": 1,
    "udp": 1,
}
"""The archivers that are spoken here, with the highest schema of their data."""

_OWN_NAMES: Mapping[str, str] = {"failer": "bitbucket"}
"""Archivers that have another name here."""

_MEMBERS = {
    1: {"archiver", "data", "transform", "ttl"},
    2: {"runs", "uri-host"},
    3: {"label"},
}
_AROUND_EQUALS = re.compile(r"(?<!\s)\s*=\s*")
"""An equals sign with its blanks; each row of blanks is looked at once, however long it is."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TIMEOUT_MAX = 2 * times.MINUTE
_KAFKA_PORT = 9092
_RETRIES = (
    "retry-policy is replaced by this node's own: after 1, 5 and 30 minutes, then every hour, "
    "until the ttl, or for a day"
)
_KEPT_OPEN = "connection-expires is not needed: an unused connection is closed after a minute"


@dataclass(frozen=True)
class ParleyArchive:
    """An archive of ours, as it is posted with a task, and what is done differently."""

    choice: ArchiveChoice
    notes: tuple[str, ...] = ()


@dataclass
class _Data:
    """The data of a spec while it is read: what nobody has taken in the end is refused."""

    archiver: str
    members: Document
    notes: list[str] = field(default_factory=list)

    def take(self, name: str, kind: type | tuple[type, ...] = str, default: Any = None) -> Any:
        """Return a member and remove it.

        :raises Refusal: it has another type.
        """
        value = self.members.pop(name, default)
        wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is int)
        if value is not None and wrong:
            raise Refusal(BAD, f"{self.archiver}: {name} is not valid")
        return value

    def need(self, name: str, kind: type | tuple[type, ...] = str) -> Any:
        """Return a member that must be there.

        :raises Refusal: it is not, or has another type.
        """
        value = self.take(name, kind)
        if value is None:
            raise Refusal(BAD, f"{self.archiver}: '{name}' is a required property")
        return value

    def refuse(self, name: str, why: str) -> NoReturn:
        """Refuse a member.

        :raises Refusal: always.
        """
        raise Refusal(CANNOT, f"The archiver {self.archiver} cannot be used here: {name} {why}.")


def to_parley(spec: Any) -> ParleyArchive:
    """Return the archive for a spec of a task.

    :raises Refusal: 400 if it is no valid spec, 422 if nothing here does what it asks for.
    """
    document = _checked_spec(spec)
    name = document["archiver"]
    data = _Data(name, {k: v for k, v in document["data"].items() if not k.startswith("#")})
    schema = data.take("schema", int, 1)
    if schema > ARCHIVERS[name]:
        raise Refusal(BAD, _too_new_message(schema, ARCHIVERS[name]))
    own = _READERS[name](data)
    if data.members:
        unknown = ", ".join(sorted(data.members))
        raise Refusal(BAD, f"{name}: unknown members: {unknown}")
    choice = {
        "archiver": own_archiver(name),
        "spec": own,
        "runs": document.get("runs", "succeeded"),
        "format": "pscheduler",
        "transform": _transform(document.get("transform")),
        "ttl": _ttl(document.get("ttl")),
        "note": document.get("label"),
        "uri_host": document.get("uri-host"),
    }
    return ParleyArchive(_choice(choice), tuple(data.notes))


def own_archiver(archiver: str) -> str:
    """Return the archiver of ours that does the work of one of pScheduler."""
    return _OWN_NAMES.get(archiver, archiver)


def _choice(document: Document) -> ArchiveChoice:
    try:
        return ArchiveChoice.model_validate(document, context=FROM_OUTSIDE)
    except ValidationError as error:
        [fault, *_] = faults_of(error, ArchiveChoice)
        raise Refusal(BAD, f"Archive {fault.pointer}: {fault.detail}") from None


def _too_new_message(schema: int, highest: int) -> str:
    return f"Schema version {schema} is not supported (highest is {highest})"


def _checked_spec(spec: Any) -> Document:
    """Return the spec without comments.

    :raises Refusal: it is no archive spec, or the archiver is not offered here.
    """
    if not isinstance(spec, dict):
        raise Refusal(BAD, "An archive specification is a JSON object.")
    document = {name: value for name, value in spec.items() if not name.startswith(("#", "_"))}
    _check_members(document)
    for name in ("archiver", "data"):
        if name not in document:
            raise Refusal(BAD, f"Archive: '{name}' is a required property")
    if not isinstance(document["archiver"], str) or not isinstance(document["data"], dict):
        raise Refusal(BAD, "Archive: archiver is a text, and data an object")
    if document["archiver"] not in ARCHIVERS:
        offered = ", ".join(ARCHIVERS)
        text = f'No archiver "{document["archiver"]}" is available; there are {offered}.'
        raise Refusal(CANNOT, text)
    return document


def _check_members(document: Document) -> None:
    """Remove the schema number, and refuse members that it does not know."""
    schema = document.pop("schema", 1)
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise Refusal(BAD, "Archive: schema is not valid")
    if schema > SCHEMA_MAX:
        raise Refusal(BAD, _too_new_message(schema, SCHEMA_MAX))
    known = {name for number, names in _MEMBERS.items() if number <= schema for name in names}
    if unknown := sorted(set(document) - known):
        raise Refusal(BAD, f"Archive: unknown members: {', '.join(unknown)}")


def _ttl(value: Any) -> str | None:
    if value is None:
        return None
    try:
        ttl = times.parse_duration(value, longest=10 * times.LONGEST)
    except (TypeError, ValueError):
        raise Refusal(BAD, f"'{value}' is not a valid ISO 8601 duration.") from None
    return times.format_duration(min(max(ttl, times.SECOND), TTL_MAX))


def _transform(value: Any) -> Document | None:
    if value is None:
        return None
    if not isinstance(value, dict) or set(value) - {"script", "output-raw", "args"}:
        raise Refusal(BAD, "Archive: transform is not valid")
    script, raw, args = value.get("script"), value.get("output-raw", False), value.get("args", {})
    if isinstance(script, list) and all(isinstance(line, str) for line in script):
        script = "\n".join(script)
    if not isinstance(script, str) or not isinstance(raw, bool) or not isinstance(args, dict):
        raise Refusal(BAD, "Archive: transform is not valid")
    program = "".join(f"{_argument(name, arg)} | " for name, arg in args.items()) + script
    return {"jq": program, **({"raw": True} if raw else {})}


def _argument(name: str, value: Any) -> str:
    """Return the beginning of a jq program that gives a value to a variable."""
    if not _VARIABLE.fullmatch(name):
        raise Refusal(BAD, f"Archive: transform: {name!r} is no name of an argument")
    return f"{json.dumps(value)} as ${name}"


# The archivers


def _retries(data: _Data) -> None:
    if data.take("retry-policy", list) is not None:
        data.notes.append(_RETRIES)


def _connection_expires(data: _Data) -> None:
    if data.take("connection-expires") is not None:
        data.notes.append(_KEPT_OPEN)


def _url(data: _Data, schemes: Sequence[str]) -> SplitResult:
    parts = split_url(data.need("_url"))
    if parts is None or parts.scheme not in schemes:
        raise Refusal(BAD, f"{data.archiver}: _url is not valid; it begins with {schemes[0]}://")
    return parts


def _http(data: _Data) -> Document:
    parts = _url(data, ("https", "http"))
    headers = {
        name: str(value)
        for name, value in data.take("_headers", dict, {}).items()
        if value is not None and value != ""
    }
    named = {name.lower(): name for name in headers}
    content_type = headers.pop(named["content-type"]) if "content-type" in named else None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers.setdefault("Authorization", "Basic " + b64encode(user.encode()).decode())
    method = data.take("op", str, "post")
    if method not in {"post", "put"}:
        raise Refusal(BAD, "http: op is 'post' or 'put'")
    _retries(data)
    host = parts.netloc.rpartition("@")[2]
    spec = {
        "url": parts._replace(netloc=host, fragment="").geturl(),
        "format": "single",
        "method": method.upper(),
        "headers": headers,
        "content_type": content_type,
        "verify": bool(data.take("verify-ssl", bool)),
        "bind": data.take("bind"),
    }
    if (timeout := data.take("timeout")) is not None:
        spec["timeout"] = _timeout(data, timeout)
    return spec


def _timeout(data: _Data, value: str) -> str:
    try:
        timeout = times.parse_duration(value)
    except ValueError:
        raise Refusal(BAD, f"'{value}' is not a valid ISO 8601 duration.") from None
    within = min(max(timeout, times.SECOND), _TIMEOUT_MAX)
    if within != timeout:
        data.notes.append(f"timeout {value} is {times.format_duration(within)} here")
    return times.format_duration(within)


def _rabbitmq(data: _Data) -> Document:
    parts = _url(data, ("amqp", "amqps"))
    routing_key = data.take("routing-key", (str, dict), "")
    if isinstance(routing_key, dict):
        data.refuse("routing-key", "is a transform, and here it is the same for all results")
    _retries(data)
    _connection_expires(data)
    secure = parts.scheme == "amqps"
    spec = {
        "host": parts.hostname,
        "port": parts.port or (5671 if secure else 5672),
        "tls": secure,
        "vhost": unquote(parts.path[1:]) or "/",
        "user": unquote(parts.username or "guest"),
        "password": unquote(parts.password or "guest"),
        "exchange": data.take("exchange", str, ""),
        "routing_key": routing_key,
    }
    if not spec["exchange"] and not routing_key:
        data.refuse("_url", "names neither an exchange nor a queue, so that nobody gets results")
    return spec


def _kafka(data: _Data) -> Document:
    security = data.take("security-protocol", str, "PLAINTEXT").upper()
    if security not in {"PLAINTEXT", "SSL"}:
        data.refuse("security-protocol", f"{security} has no counterpart")
    for name in sorted(data.members):
        if name.lstrip("_").startswith("ssl-"):
            data.refuse(name, "has no counterpart: the host's own certificates are used")
    _retries(data)
    return {
        "brokers": [_broker(data, word) for word in data.need("server").split(",")],
        "topic": data.need("topic"),
        "tls": security == "SSL",
    }


def _broker(data: _Data, word: str) -> Document:
    host, colon, port = word.strip().rpartition(":")
    if not colon:
        return {"host": word.strip(), "port": _KAFKA_PORT}
    if not port.isdecimal():
        raise Refusal(BAD, f"{data.archiver}: server is not valid")
    return {"host": host.strip("[]"), "port": int(port)}


_DSN = {
    "host": "host",
    "hostaddr": "host",
    "port": "port",
    "dbname": "database",
    "user": "user",
    "password": "password",
    "sslmode": "tls",
}
_TLS = {
    "disable": "disable",
    "allow": "prefer",
    "prefer": "prefer",
    "require": "require",
    "verify-ca": "verify-full",
    "verify-full": "verify-full",
}


def _postgresql(data: _Data) -> Document:
    words = _dsn(data, data.need("_dsn"))
    spec: Document = {"create": False}
    for name, value in words.items():
        if name not in _DSN:
            data.refuse("_dsn", f"has a parameter {name}, which has no counterpart")
        spec[_DSN[name]] = value
    for name in ("database", "user"):
        if name not in spec:
            data.refuse("_dsn", f"does not name the {name}")
    if not str(spec.get("port", "5432")).isdecimal() or spec.get("tls", "prefer") not in _TLS:
        raise Refusal(BAD, "postgresql: _dsn is not valid")
    spec["port"] = int(spec.get("port", 5432))
    spec["tls"] = _TLS[spec.get("tls", "prefer")]
    if str(spec.get("host", "")).startswith("/"):
        spec["socket"] = spec.pop("host")
    _retries(data)
    _connection_expires(data)
    table, column = data.need("table"), data.need("column")
    namespace, dot, rest = table.rpartition(".")
    if dot:
        spec["namespace"] = namespace
    return {**spec, "table": rest, "column": column}


def _dsn(data: _Data, text: str) -> dict[str, str]:
    """Return the parameters of a connection string of libpq, in either of its forms."""
    try:
        if text.startswith(("postgres://", "postgresql://")):
            parts = urlsplit(text)
            words = {
                "host": parts.hostname,
                "port": None if parts.port is None else str(parts.port),
                "dbname": unquote(parts.path[1:]),
                "user": None if parts.username is None else unquote(parts.username),
                "password": None if parts.password is None else unquote(parts.password),
                **dict(parse_qsl(parts.query)),
            }
            return {name: value for name, value in words.items() if value}
        pairs = shlex.split(_AROUND_EQUALS.sub("=", text))
        return dict(_pair(word) for word in pairs)
    except ValueError:
        raise Refusal(BAD, f"{data.archiver}: _dsn is not valid") from None


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(word)
    return name, value


def _syslog(data: _Data) -> Document:
    facility = data.take("facility", str, "user")
    if facility == "kern":
        data.notes.append("messages of the kernel's facility are those of the facility user")
    return {
        "transport": "unix",
        "app_name": data.take("ident", str, "pScheduler"),
        "facility": "user" if facility == "kern" else facility,
        "severity": data.take("priority", str, "info"),
    }


def _socket(data: _Data) -> Document:
    _retries(data)
    if data.archiver == "udp" and (size := data.take("payload-size", int)) is not None:
        data.notes.append(f"payload-size {size} does not matter: a document is one datagram")
    if data.archiver == "tcp":
        data.notes.append("the connection stays open, and each document is a line")
    return {
        "host": data.need("host"),
        "port": data.need("port", int),
        "ip_version": data.take("ip-version", int),
        "bind": data.take("bind"),
    }


def _bitbucket(data: _Data) -> Document:
    data.members.clear()  # test material: whatever it says, nothing is done with it
    return {}


def _failer(data: _Data) -> Document:
    """Read the data of an archiver that fails at random, which none here does.

    ``troubleshoot`` of older releases asks for one that never fails.
    """
    if data.take("fail", (int, float), 0.5):
        data.refuse("fail", "is not 0, and no archiver here fails on purpose")
    if data.take("badly", bool):
        data.refuse("badly", "is true, and no archiver here fails on purpose")
    data.take("retry", (int, float))
    if data.take("delay") is not None:
        data.notes.append("delay is not used: results are dropped at once")
    return {}


_READERS: Mapping[str, Callable[[_Data], Document]] = {
    "bitbucket": _bitbucket,
    "failer": _failer,
    "http": _http,
    "kafka": _kafka,
    "postgresql": _postgresql,
    "rabbitmq": _rabbitmq,
    "syslog": _syslog,
    "tcp": _socket,
    "udp": _socket,
}
