"""HTTP by curl, with the version of HTTP that it negotiates. Pure.

curl prints its instants on standard error, as JSON; the body is on standard output, and only if it
is to be searched for a text. With redirects its instants are sums over all requests, and so are
the phases, which are their differences.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError

from node.model.errors import ToolOutputError
from node.model.targets import literal
from node.model.times import SECOND
from node.plugins.binding import EITHER, binding_arguments, version_of
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.fields import CountField, ForeignText, texts
from node.plugins.outline import AROUND, ClientTool
from node.plugins.participation import first_fault
from node.plugins.reading import BYTES_MAX, failure
from node.plugins.tests.http import HttpPhases, HttpResult, HttpSpec

_OUR_FAULT = frozenset({2, 4, 27, 41, 43, 48})
"""Exit codes (curl's manual) that do not concern the target: options, memory, curl itself."""
_TOO_LARGE = 63
_NOT_RESOLVED = 6
_SECONDS_DECIMALS = 3
_NOWHERE = "another-host.invalid"


_Instant = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
"""Seconds since the request began; in milliseconds they still are what a result may hold."""


class _CurlOutput(BaseModel):
    """The fields of ``%{json}`` that we use; versions differ in the others."""

    exitcode: int
    errormsg: ForeignText | None
    url_effective: ForeignText
    remote_ip: ForeignText
    http_code: CountField
    http_version: ForeignText
    num_redirects: CountField
    size_download: CountField
    time_namelookup: _Instant
    time_connect: _Instant
    time_appconnect: _Instant
    time_pretransfer: _Instant
    time_starttransfer: _Instant
    time_redirect: _Instant
    time_total: _Instant


class CurlTool(ClientTool):
    """The program curl itself."""

    name = "curl"
    tests: tuple[str, ...] = ("http",)
    binds = EITHER
    requirement: Requirement | None = Requirement(
        "curl", "curl", ("curl", "--version"), r"curl (\d+(?:\.\d+)+)"
    )
    tried: tuple[str, ...] = ("7.88.1",)

    def duration(self, spec: HttpSpec) -> int:
        """Return set-up, the spec's timeout and wrap-up, in microseconds."""
        return AROUND + spec.timeout

    def unchecked(self, spec: HttpSpec) -> str | None:
        """Return why a task of another node must not use curl; None if it follows no redirects."""
        if spec.redirects_followed == 0:
            return None
        return (
            "curl follows redirects without a check, so tasks of other nodes cannot use it with "
            "them; set redirects to 0, or use fetch"
        )

    def command(self, part: PartContext) -> Command:
        """Return ``curl -q --silent … --url URL``; headers are on standard input.

        ``-q`` comes first, so that no configuration file of the node's user changes the result. It
        uses no proxy, no protocol except HTTP, and expands no pattern in the URL.
        """
        spec: HttpSpec = part.spec
        argv = ["curl", "-q", "--silent", "--globoff", "--path-as-is", "--noproxy", "*"]
        argv += ["--proto", "=http,https", "--proto-redir", "=http,https"]
        argv += ["--user-agent", part.agent]
        argv += ["--max-time", f"{spec.timeout / SECOND:.{_SECONDS_DECIMALS}f}"]
        argv += ["--max-filesize", str(spec.bytes_max), "--write-out", "%{stderr}%{json}"]
        if spec.text is None:
            argv += ["--output", "/dev/null"]
        if spec.method == "HEAD":
            argv.append("--head")
        if not spec.verify:
            argv.append("--insecure")
        if (version := version_of(part)) is not None:
            argv.append(f"--ipv{version}")
        if words := binding_arguments(part, "if!", "host!"):
            argv += ["--interface", "".join(words)]
        if spec.headers:
            argv += ["--header", "@-"]
        argv += _place_options(spec, part.addresses.get(spec.host, spec.host))
        lines = [f"{name}: {value}\n" for name, value in texts(spec.headers).items()]
        return Command(
            (*argv, "--url", spec.url),
            stdin="".join(lines).encode(),
            foreign_stdout=spec.text is not None,
        )

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the phases and the answer; a missing answer is a result as well.

        :raises ToolOutputError: curl was ended, could not do its work, or contradicts itself.
        """
        spec: HttpSpec = part.spec
        report = _report(output)
        if report.exitcode in _OUR_FAULT:
            raise ToolOutputError(f"curl: {report.errormsg} (exit code {report.exitcode})")
        answered = report.http_code > 0
        cut = report.exitcode == _TOO_LARGE
        reason = None if report.exitcode == 0 or (cut and answered) else _reason(report, spec)
        if reason is None and not answered:
            raise ToolOutputError("curl reports neither an answer nor a failure")
        matched = None
        if spec.text is not None and answered:
            matched = spec.text.encode() in output.stdout[: spec.bytes_max]
        result = HttpResult(
            url=report.url_effective,
            address=report.remote_ip or None,
            status=report.http_code if answered else None,
            protocol=f"HTTP/{report.http_version}" if answered else None,
            phases_ms=_phases(
                report, resolving=part.rules is None or literal(spec.host) is not None
            ),
            total_ms=_milliseconds(report.time_total),
            redirects=report.num_redirects,
            redirect_ms=_milliseconds(report.time_redirect),
            body_bytes=report.size_download if answered else None,
            complete=report.exitcode == 0 if answered else None,
            matched=matched,
            failure=reason,
        )
        return result.model_dump(mode="json")


def _place_options(spec: HttpSpec, address: str) -> list[str]:
    """Return the options for redirects, and for where to connect to.

    The URL's host may have another address than its name says: that of a node. A redirect to
    another host leads nowhere: nobody has asked that one whether it objects to being measured, and
    curl cannot. The first option that fits a host counts; a name below ``.invalid`` has no address
    (RFC 6761).
    """
    # Without ports, so that it applies to every port that a redirect on that host uses.
    here = ["--connect-to", f"{_bracketed_address(spec.host)}::{_bracketed_address(address)}:"]
    if spec.redirects_followed:
        followed = ["--location", "--max-redirs", str(spec.redirects_followed)]
        return [*followed, *here, "--connect-to", f"::{_NOWHERE}:"]
    return here if address != spec.host else []


def _bracketed_address(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host  # noqa: PLR2004
    except ValueError:
        return host


def _report(output: Output) -> _CurlOutput:
    """Parse curl's report.

    :raises ToolOutputError: it is not such a document.
    """
    if len(output.stdout) > BYTES_MAX or len(output.stderr) > BYTES_MAX:
        printed = max(len(output.stdout), len(output.stderr))
        raise ToolOutputError(f"curl printed {printed} bytes, too many to read")
    if not output.stderr.startswith(b"{"):
        raise failure(output, "curl", "it printed nothing")
    try:
        return _CurlOutput.model_validate_json(output.stderr, strict=True)
    except ValidationError as fault:
        raise ToolOutputError(
            f"curl: {first_fault(fault)} (exit code {output.exit_code})"
        ) from None


def _reason(report: _CurlOutput, spec: HttpSpec) -> str:
    host = urlsplit(report.url_effective).hostname
    # Later versions name the host of the URL as not found, and not the one to connect to.
    if report.exitcode == _NOT_RESOLVED and host != spec.host:
        return (
            f"redirected to {host}, which curl cannot ask whether it objects to being measured; "
            "use fetch, or name that URL"
        )
    return report.errormsg or f"curl ended with exit code {report.exitcode}"


def _phases(report: _CurlOutput, *, resolving: bool) -> HttpPhases:
    """Return the phases between curl's instants; an instant that was not reached is 0.

    ``resolving`` is whether curl itself looked the name up.
    """
    over_tls = report.time_appconnect > 0
    return HttpPhases(
        name=_phase_ms(0, report.time_namelookup) if resolving else None,
        connect=_phase_ms(report.time_namelookup, report.time_connect),
        # The instant after TLS is a sum over the requests with TLS only, and cannot be used.
        tls=_phase_ms(report.time_connect, report.time_pretransfer) if over_tls else None,
        first_byte=_phase_ms(report.time_pretransfer, report.time_starttransfer),
        transfer=_phase_ms(report.time_starttransfer, report.time_total)
        if report.time_starttransfer
        else None,
    )


def _phase_ms(begin_s: float, end_s: float) -> float | None:
    if not end_s:
        return None
    if end_s < begin_s:
        raise ToolOutputError(f"curl contradicts itself: {end_s} s is before {begin_s} s")
    return _milliseconds(end_s - begin_s)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, _SECONDS_DECIMALS)


TOOL = CurlTool()
