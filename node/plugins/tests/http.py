"""One URL requested over HTTP: how long each phase takes, and whether the answer is right. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, model_validator

from node.model.times import MILLISECOND, MINUTE, SECOND
from node.model.wire.circumstances import Traffic
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Metric, Result
from node.plugins.fields import (
    SECRET,
    Asker,
    CountField,
    ForeignText,
    IpVersion,
    NonNegative,
    SecretText,
    between,
    duration_field,
    flag_field,
    whole_field,
)
from node.plugins.figures import delay_text, metric
from node.plugins.outline import TargetTest

_PLAIN = re.compile(r"[\x21-\x7e]+", re.ASCII)
_PORTS = {"http": 80, "https": 443}
_HOST: TypeAdapter[str] = TypeAdapter(Host)
_REDIRECTS = 5
_BAD = 400
_RESERVED_HEADERS = frozenset(
    {
        "accept-encoding", "connection", "content-length", "expect", "host", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip


def _check_url(value: str) -> str:
    parts = urlsplit(value)  # itself raises ValueError for a malformed address
    if parts.scheme not in _PORTS or not parts.hostname or not _PLAIN.fullmatch(value):
        raise ValueError("not a URL; write http://HOST/PATH or https://HOST/PATH")
    if "@" in parts.netloc:
        raise ValueError("a user or password in a URL is not accepted: it is shown; use a header")
    if parts.port == 0 or parts.fragment:
        raise ValueError("a URL with port 0, or with a part after '#', cannot be requested")
    _HOST.validate_python(parts.hostname)
    return value


def _check_header(value: str) -> str:
    if value.lower() in _RESERVED_HEADERS:
        raise ValueError(f"{value} is set by the node; leave it out")
    return value


Url = Annotated[str, StringConstraints(strict=True, max_length=2000), AfterValidator(_check_url)]
"""``http://…`` or ``https://…``, in ASCII: other characters percent-encoded or in Punycode."""

HeaderName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$"),
    AfterValidator(_check_header),
]
"""A header's name (RFC 9110)."""

HeaderValue = Annotated[str, StringConstraints(pattern=r"^[!-~]([ -~]{0,998}[!-~])?$")]
"""A header's value: ASCII without control characters, with spaces only inside."""


class HttpSpec(Document):
    """The request, and the expected answer."""

    source: Asker = None
    url: Url = Field(description="The URL to request, http or https; without user and password.")
    method: Literal["GET", "HEAD"] = Field(default="GET", description="The method: GET or HEAD.")
    headers: dict[HeaderName, SecretText[HeaderValue]] = Field(
        default={},
        max_length=10,
        description='Headers to send: each a text, or {"secret": "NAME"} for one in the store of'
        " the owner of the host that asks. Only that host's tool is told their values. With"
        " headers, redirects are not followed.",
        json_schema_extra=SECRET,
    )
    redirects: Annotated[int, Field(ge=0, le=20, strict=True)] | None = Field(
        default=None,
        description="Maximum redirects to follow; by default 5, or 0 with headers.",
    )
    status: Annotated[int, Field(ge=100, le=599, strict=True)] | None = Field(
        default=None, description="The status the answer must have; by default any below 400."
    )
    text: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000)] | None = (
        Field(default=None, description="A text that the body must contain, as UTF-8 bytes.")
    )
    verify: bool = flag_field("Whether the certificate must be trusted (https).", default=True)
    bytes_max: int = whole_field(1_000_000, 1, 8_000_000, "Maximum bytes of the body to read.")
    timeout: Annotated[Duration, between(10 * MILLISECOND, 5 * MINUTE)] = duration_field(
        10 * SECOND, "The limit for all of it, redirects included, PT0.01S to PT5M."
    )
    ip_version: IpVersion | None = Field(
        default=None, description="4 or 6; by default that of the host's addresses."
    )

    @model_validator(mode="after")
    def _check_fields(self) -> HttpSpec:
        if self.headers and self.redirects:
            raise ValueError("redirects could send the headers to another host: leave one out")
        if len({name.lower() for name in self.headers}) < len(self.headers):
            raise ValueError("a header occurs twice")
        if self.text is not None and self.method == "HEAD":
            raise ValueError("HEAD returns no body that could contain text")
        return self

    @property
    def redirects_followed(self) -> int:
        """The maximum number of redirects to follow."""
        if self.redirects is None:
            return 0 if self.headers else _REDIRECTS
        return self.redirects

    @property
    def host(self) -> str:
        """The host of the first request."""
        return urlsplit(self.url).hostname or ""


class HttpPhases(Document):
    """The time of each phase in milliseconds, summed over redirects; null if never completed."""

    name: NonNegative | None = Field(description="Resolving the name, in milliseconds.")
    connect: NonNegative | None = Field(description="Connecting over TCP, in milliseconds.")
    tls: NonNegative | None = Field(
        description="The TLS handshake, in milliseconds; null for http."
    )
    first_byte: NonNegative | None = Field(
        description="From the request until the answer's first byte, in milliseconds."
    )
    transfer: NonNegative | None = Field(
        description="From the first byte to the last one read, in milliseconds."
    )


class HttpResult(Document):
    """The phases, and the answer."""

    url: ForeignText = Field(
        description="The last URL requested; the first one if redirects is null."
    )
    address: ForeignText | None = Field(description="The last address connected to.")
    status: CountField | None = Field(description="The last answer's status.")
    protocol: ForeignText | None = Field(description="The version of HTTP.")
    phases_ms: HttpPhases = Field(
        description="How long each phase took, in milliseconds, summed over redirects."
    )
    total_ms: NonNegative = Field(description="All of it, in milliseconds.")
    redirects: CountField | None = Field(
        description="The number of redirects followed; null if it was not told."
    )
    redirect_ms: NonNegative | None = Field(
        description="Until the last request began, in milliseconds; 0 without redirects, null if it"
        " was not told."
    )
    body_bytes: CountField | None = Field(description="Bytes of the last body that were read.")
    complete: bool | None = Field(description="Whether the whole body was read.")
    matched: bool | None = Field(
        description="Whether the part that was read contains the text; null if none was expected."
    )
    failure: ForeignText | None = Field(description="Why the answer is missing or incomplete.")


class HttpTest(TargetTest):
    """Phases and content of an HTTP answer."""

    name = "http"
    title = "HTTP answer and its phases"
    example: Mapping[str, Any] = {"url": "https://b.example/"}
    spec_model: type[Document] = HttpSpec
    result_model: type[Document] = HttpResult
    part_models: tuple[type[Document], ...] = (HttpResult,)
    targets = ("host",)

    def target_port(self, spec: HttpSpec) -> int:
        """Return the port of the first request."""
        parts = urlsplit(spec.url)
        return parts.port or _PORTS[parts.scheme]

    def telling(self, spec: HttpSpec) -> str | None:
        """Return ``text``, if the result tells whether it is in the body."""
        return None if spec.text is None else "text"

    def expected_bytes(self, spec: HttpSpec, mbps: int | None) -> int:
        """Return the most that it reads of a body; HEAD asks for none."""
        return spec.bytes_max if spec.method == "GET" else 0

    def moved(self, spec: HttpSpec, participant: int, result: Result) -> Traffic:
        """Return what it read of the body."""
        figures = HttpResult.model_validate(result)
        return Traffic(sent_bytes=0, received_bytes=figures.body_bytes or 0)

    def shortfall(self, spec: HttpSpec, result: HttpResult) -> str | None:
        """Return how the result falls short of the spec; None if it does not."""
        if result.failure is not None or result.status is None:
            return result.failure or "there was no answer"
        status, server = _status_text(result.status), result.address or spec.host
        if spec.status is not None and result.status != spec.status:
            return f"{server} answered {status} where {spec.status} was expected"
        if spec.status is None and result.status >= _BAD:
            return f"{server} answered {status}"
        if spec.text is not None and not result.matched:
            whole = result.complete or result.body_bytes is None
            read = "" if whole else f"first {result.body_bytes} bytes of the "
            return f"{spec.text[:100]!r} is not in the {read}body"
        return None

    def summary(self, result: Result) -> str:
        """Return ``200 OK in 84.20 ms, first byte after 41.10 ms, 1256 bytes``."""
        figures = HttpResult.model_validate(result)
        if figures.status is None:
            return f"no answer: {figures.failure or 'no reason'}"
        text = f"{_status_text(figures.status)} in {delay_text(figures.total_ms)}"
        if figures.phases_ms.first_byte is not None:
            text += f", first byte after {delay_text(figures.phases_ms.first_byte)}"
        if figures.redirects:
            text += f", {figures.redirects} redirects"
        return text if figures.body_bytes is None else f"{text}, {figures.body_bytes} bytes"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return the total time, each phase, status and size."""
        figures = HttpResult.model_validate(result)
        phases: dict[str, Any] = figures.phases_ms.model_dump()
        metrics = metric("total_ms", figures.total_ms, "ms")
        for phase, value in phases.items():
            metrics += metric("phase_ms", value, "ms", {"phase": phase})
        return (
            *metrics,
            *metric("status", figures.status, "1"),
            *metric("body_bytes", figures.body_bytes, "bytes"),
            *metric("redirects", figures.redirects, "redirects"),
        )


def _status_text(status: int) -> str:
    """Return ``404 Not Found``."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


TEST = HttpTest()
