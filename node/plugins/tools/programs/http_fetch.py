"""Requests one URL over HTTP/1.1, follows redirects, and prints how long each phase took.

``http_fetch.py '{"url": "https://a.example/", "redirects": 5, …}'``, see :func:`measure`. Headers
come on standard input, because lists of processes show the argv. Every request has a connection of
its own; no proxy is used, and no cookies are kept.
"""

from __future__ import annotations

import http.client
import ssl
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint, target

if TYPE_CHECKING:
    from collections.abc import Callable

_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PIECE_BYTES = 65_536
_URL_MAX = 4000
_URL_CHARACTERS = "%!#$&'()*+,/:;=?@[]~"  # RFC 3986: reserved and unreserved
_SPACE, _DELETE = 0x20, 0x7F


class Fetch:
    """A request with its redirects: the measurements so far."""

    def __init__(
        self,
        arguments: stamp_endpoint.Arguments,
        private: target.Private,
        context: ssl.SSLContext | None,
        objection: Callable[[list[str], list[str], float], str | None] = target.objection,
    ) -> None:
        """Take headers for every request, and the TLS settings, or None if not yet known."""
        self._objection = objection
        self._arguments = arguments
        self._headers = private.headers
        self._rules = private.rules
        self._not_asked = private.not_asked
        self._asking_ns = 0
        """The time in which it was asked by DNS whether a host objects; it is part of no figure."""
        self._context = context
        self._deadline = target.Deadline(arguments["timeout_ns"])
        self._text = arguments["text"].encode() if arguments["text"] is not None else None
        self._phases: dict[str, int] = {}
        self._result: dict[str, Any] = {"redirects": 0, "redirect_ns": 0}

    def run(self) -> dict[str, Any]:
        """Return the measurements, and the failure if there was one."""
        began_ns = time.monotonic_ns()
        url = self._arguments["url"]
        try:
            while (further := self._ask(url)) is not None:
                self._result["redirect_ns"] = time.monotonic_ns() - began_ns - self._asking_ns
                url = further
        except target.Distrusted as reason:
            self._result["failure"] = f"the certificate is not trusted: {reason}"
        except target.TargetUnreachable as reason:
            self._result["failure"] = str(reason)
        except (OSError, ValueError, http.client.HTTPException) as fault:
            self._result["failure"] = _failure_text(fault)
        self._result["total_ns"] = time.monotonic_ns() - began_ns - self._asking_ns
        return self._result | {"url": url, "phases_ns": self._phases}

    def _ask(self, url: str) -> str | None:
        """Make one request; return the URL of a redirect to follow, or None.

        :raises target.TargetUnreachable: an invalid URL, or an unreachable or slow target.
        :raises http.client.HTTPException: the answer is not HTTP.
        """
        parts, port = _split(url)
        host = parts.hostname or ""
        if parts.scheme == "https" and self._context is None:
            self._context = _context(verify=self._arguments["verify"])
        own = urlsplit(self._arguments["url"]).hostname or ""
        if (refusal := target.redirect_refusal(own, host, self._rules)) is not None:
            raise target.TargetUnreachable(refusal)
        looked_up_ns = time.monotonic_ns()
        at = self._arguments["address"] if host == own else host
        version = self._arguments["ip_version"]
        addresses = target.look_up(at, port, version, self._deadline, self._rules)
        self._add("name", looked_up_ns)
        if host != own:
            self._ask_whether_it_objects(host, addresses)
        resolved_ns = time.monotonic_ns()
        with target.connect(addresses, self._deadline, self._arguments) as plain:
            connected_ns = self._add("connect", resolved_ns)
            self._result["address"] = plain.getpeername()[0]
            if parts.scheme == "http" or self._context is None:
                return self._exchange(plain, parts, url)
            with target.secure(self._context, plain, host, self._deadline) as endpoint:
                self._add("tls", connected_ns)
                return self._exchange(endpoint, parts, url)

    def _ask_whether_it_objects(self, host: str, addresses: list[target.Address]) -> None:
        """Return if a host to which a redirect leads does not object to being measured.

        The hosts that the task names were asked before this program began.

        :raises target.TargetUnreachable: it does.
        """
        if self._not_asked is None:
            return
        began_ns = time.monotonic_ns()
        hosts = [host, *(address[0] for _, address in addresses)]
        left_s = self._deadline.left(f"{host} was not asked whether it objects")
        objection = self._objection(hosts, self._not_asked, left_s)
        self._asking_ns += time.monotonic_ns() - began_ns
        if objection is not None:
            raise target.TargetUnreachable(objection)

    def _add(self, phase: str, since_ns: int) -> int:
        now_ns = time.monotonic_ns()
        self._phases[phase] = self._phases.get(phase, 0) + now_ns - since_ns
        return now_ns

    def _exchange(self, endpoint: Any, parts: SplitResult, url: str) -> str | None:
        endpoint.settimeout(self._deadline.left("the request could not be sent"))
        sending_ns = time.monotonic_ns()
        endpoint.sendall(self._request(parts))
        wire = target.Wire(endpoint, self._deadline)
        answer = http.client.HTTPResponse(wire, method=self._arguments["method"])  # type: ignore[arg-type]
        with answer:
            try:
                answer.begin()
            finally:
                if wire.first_ns is not None:
                    self._phases["first_byte"] = (
                        self._phases.get("first_byte", 0) + wire.first_ns - sending_ns
                    )
            self._result["status"] = answer.status
            self._result["protocol"] = f"HTTP/{answer.version // 10}.{answer.version % 10}"
            try:
                self._read(answer)
            finally:
                self._add("transfer", wire.first_ns or sending_ns)
            further = answer.getheader("Location")
            if answer.status not in _REDIRECTS or not further or not self._arguments["redirects"]:
                return None
            if self._result["redirects"] == self._arguments["redirects"]:
                raise target.TargetUnreachable(f"more than {self._result['redirects']} redirects")
            self._result["redirects"] += 1
            return _redirect_target(url, further[:_URL_MAX])

    def _request(self, parts: SplitResult) -> bytes:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"{self._arguments['method']} {path} HTTP/1.1"]
        headers = {
            "Host": parts.netloc,
            "User-Agent": self._arguments["agent"],
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        own = {name.lower() for name in self._headers}
        headers = {name: it for name, it in headers.items() if name.lower() not in own}
        lines += [f"{name}: {value}" for name, value in (headers | self._headers).items()]
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii")

    def _read(self, answer: http.client.HTTPResponse) -> None:
        """Read the body up to its limit, and search the part that was read for the text."""
        body = bytearray()
        self._result |= {"bytes": 0, "complete": False, "matched": None}
        try:
            while (left := self._arguments["bytes_max"] - len(body)) > 0:
                piece = answer.read1(min(left, _PIECE_BYTES))
                if not piece:
                    break
                body += piece
        finally:
            self._result["bytes"] = len(body)
            if self._text is not None:
                self._result["matched"] = self._text in body
        # The parser reports a truncated body only if its length was announced.
        if answer.length and len(body) < self._arguments["bytes_max"]:
            raise http.client.IncompleteRead(b"", answer.length)
        self._result["complete"] = answer.isclosed() or not answer.read1(1)


def _context(*, verify: bool) -> ssl.SSLContext:
    """Return the TLS settings. This takes a while: the system's trust store is read."""
    return target.judging_context(["http/1.1"], verify=verify)


def _redirect_target(url: str, location: str) -> str:
    """Return the target of a redirect; headers are read as Latin-1, so other characters are quoted.

    :raises target.TargetUnreachable: it is not a URL.
    """
    try:
        return urljoin(url, quote(location.encode("latin-1"), safe=_URL_CHARACTERS))
    except ValueError:
        raise target.TargetUnreachable(
            f"redirected to an unsupported URL: {location[:200]}"
        ) from None


def _split(url: str) -> tuple[SplitResult, int]:
    """Return a URL's parts and port.

    :raises target.TargetUnreachable: it cannot be requested.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
        sendable = (parts.path + parts.query + parts.netloc).encode("ascii")
    except (ValueError, KeyError):
        raise target.TargetUnreachable(f"redirected to an unsupported URL: {url[:200]}") from None
    if not parts.hostname or "@" in parts.netloc or not _is_plain(sendable):
        raise target.TargetUnreachable(f"redirected to an unsupported URL: {url[:200]}")
    return parts, port


def _is_plain(octets: bytes) -> bool:
    return all(_SPACE < octet < _DELETE for octet in octets)


def _failure_text(fault: Exception) -> str:
    if isinstance(fault, http.client.RemoteDisconnected):
        return "the connection was closed without an answer"
    if isinstance(fault, http.client.IncompleteRead):
        return f"the answer broke off, {fault.expected} bytes are missing"
    if isinstance(fault, OSError):
        return f"the connection broke: {target.system_error_text(fault)}"
    return f"the answer is not HTTP: {type(fault).__name__}"


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Fetch one URL.

    Arguments: ``url``, ``address`` (of its host, or the host itself), ``method``, ``ip_version``
    (4, 6 or null), ``device``, ``source`` (the address to send from, or null), ``redirects`` (the
    maximum to follow), ``timeout_ns`` (for everything), ``bytes_max`` (of the body), ``text`` (to
    search for in it, or null), ``verify`` (the certificate), ``first_ns`` (the instant to begin),
    ``private`` (see :class:`.target.Private`: the headers, the rules for each address, and who is
    not asked whether they object where a redirect leads to another host).
    Result: the last URL, its address, status and protocol, bytes read and whether that was all,
    whether the text was found; ``phases_ns``, each summed over all requests; nanoseconds in all and
    until the last request; ``failure`` if the result is incomplete.
    """
    private = target.Private(arguments)
    is_secure = arguments["url"].startswith("https:")
    context = _context(verify=arguments["verify"]) if is_secure else None
    stamp_endpoint.wait_until(arguments["first_ns"])
    return Fetch(arguments, private, context).run()


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure, undisturbed=True))
