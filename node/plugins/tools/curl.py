"""HTTP by curl, with whatever version of HTTP it agrees on. Pure.

curl tells its instants on standard error, as JSON; the body is on standard output, and only there
when a text is to be looked for in it. Its instants are sums over all requests if there were
redirects, and so are phases, which are their differences.
"""

from __future__ import annotations

import ipaddress

from pydantic import BaseModel, ValidationError

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.plugins.binding import EITHER, binding_arguments, version_of
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.fields import CountField, ForeignText, NonNegative
from node.plugins.participation import first_fault
from node.plugins.reading import BYTES_MAX, failure
from node.plugins.single_participant import LoneTool
from node.plugins.tests.http import HttpPhases, HttpResult, HttpSpec

_SET_UP = SECOND // 2
"""Programs that start together on a busy host may be so late."""
_WRAP_UP = SECOND // 2  # the launcher ends what still runs 250 ms before the booked end

_OUR_FAULT = frozenset({2, 4, 27, 41, 43, 48})
"""Exit codes (curl's manual) that say nothing of the target: options, memory, curl itself."""
_TOO_LARGE = 63
_SECONDS_DECIMALS = 3


class _CurlOutput(BaseModel):
    """What we use of ``%{json}``; versions differ in what else there is."""

    exitcode: int
    errormsg: ForeignText | None
    url_effective: ForeignText
    remote_ip: ForeignText
    http_code: CountField
    http_version: ForeignText
    num_redirects: CountField
    size_download: CountField
    time_namelookup: NonNegative
    time_connect: NonNegative
    time_appconnect: NonNegative
    time_pretransfer: NonNegative
    time_starttransfer: NonNegative
    time_redirect: NonNegative
    time_total: NonNegative


class CurlTool(LoneTool):
    """The program curl."""

    name = "curl"
    tests: tuple[str, ...] = ("http",)
    preference = 0
    binds = EITHER
    requirement: Requirement | None = Requirement(
        "curl", "curl", ("curl", "--version"), r"curl (\d+(?:\.\d+)+)"
    )
    tried: tuple[str, ...] = ("7.88.1",)

    def duration(self, spec: HttpSpec) -> int:
        """Set-up, the timeout of all of it, and wrap-up, in microseconds."""
        return _SET_UP + spec.timeout + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """``curl -q --silent … --url URL``; headers on standard input.

        ``-q`` comes first: no file of whoever runs the node changes what is measured. No proxy, no
        other protocol than HTTP, no pattern in the URL is followed.
        """
        spec: HttpSpec = part.spec
        argv = ["curl", "-q", "--silent", "--globoff", "--path-as-is", "--noproxy", "*"]
        argv += ["--proto", "=http,https", "--proto-redir", "=http,https", "--user-agent", "parley"]
        argv += ["--max-time", f"{spec.timeout / SECOND:.{_SECONDS_DECIMALS}f}"]
        argv += ["--max-filesize", str(spec.bytes_max), "--write-out", "%{stderr}%{json}"]
        if spec.text is None:
            argv += ["--output", "/dev/null"]
        if spec.method == "HEAD":
            argv.append("--head")
        if spec.redirects_followed:
            argv += ["--location", "--max-redirs", str(spec.redirects_followed)]
        if not spec.verify:
            argv.append("--insecure")
        if (version := version_of(part)) is not None:
            argv.append(f"--ipv{version}")
        if words := binding_arguments(part, "if!", "host!"):
            argv += ["--interface", "".join(words)]
        if spec.headers:
            argv += ["--header", "@-"]
        argv += _elsewhere(spec, part.addresses.get(spec.host, spec.host))
        lines = [f"{name}: {value}\n" for name, value in spec.headers.items()]
        return Command((*argv, "--url", spec.url), stdin="".join(lines).encode())

    def read(self, part: PartContext, output: Output) -> Result:
        """Phases and what came; that nothing came is a result as well.

        :raises ToolOutputError: curl was ended, could not do its work, or contradicts itself.
        """
        spec: HttpSpec = part.spec
        told = _told(output)
        if told.exitcode in _OUR_FAULT:
            raise ToolOutputError(f"curl: {told.errormsg} (exit code {told.exitcode})")
        answered = told.http_code > 0
        cut = told.exitcode == _TOO_LARGE
        reason = None if told.exitcode == 0 or (cut and answered) else _reason(told)
        if reason is None and not answered:
            raise ToolOutputError("curl tells neither of an answer nor of a failure")
        matched = None
        if spec.text is not None and answered:
            matched = spec.text.encode() in output.stdout[: spec.bytes_max]
        result = HttpResult(
            url=told.url_effective,
            address=told.remote_ip or None,
            status=told.http_code if answered else None,
            protocol=f"HTTP/{told.http_version}" if answered else None,
            phases_ms=_phases(told),
            total_ms=_milliseconds(told.time_total),
            redirects=told.num_redirects,
            redirect_ms=_milliseconds(told.time_redirect),
            body_bytes=told.size_download if answered else None,
            complete=told.exitcode == 0 if answered else None,
            matched=matched,
            failure=reason,
        )
        return result.model_dump(mode="json")


def _elsewhere(spec: HttpSpec, address: str) -> list[str]:
    """The option to ask another address than the URL's host: a node is known by name."""
    if address == spec.host:
        return []
    # Without ports: whatever port a redirect on that host goes to.
    return ["--connect-to", f"{_bracketed(spec.host)}::{_bracketed(address)}:"]


def _bracketed(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host  # noqa: PLR2004
    except ValueError:
        return host


def _told(output: Output) -> _CurlOutput:
    """What curl wrote of itself.

    :raises ToolOutputError: that is no such document.
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


def _reason(told: _CurlOutput) -> str:
    return told.errormsg or f"curl ended with exit code {told.exitcode}"


def _phases(told: _CurlOutput) -> HttpPhases:
    """The phases between curl's instants; 0 is what it says of an instant that did not come."""
    over_tls = told.time_appconnect > 0
    return HttpPhases(
        name=_between(0, told.time_namelookup),
        connect=_between(told.time_namelookup, told.time_connect),
        # The instant after TLS is a sum over the requests with TLS only, and cannot be used.
        tls=_between(told.time_connect, told.time_pretransfer) if over_tls else None,
        first_byte=_between(told.time_pretransfer, told.time_starttransfer),
        transfer=_between(told.time_starttransfer, told.time_total)
        if told.time_starttransfer
        else None,
    )


def _between(begin_s: float, end_s: float) -> float | None:
    if not end_s:
        return None
    if end_s < begin_s:
        raise ToolOutputError(f"curl contradicts itself: {end_s} s is before {begin_s} s")
    return _milliseconds(end_s - begin_s)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, _SECONDS_DECIMALS)


TOOL = CurlTool()
