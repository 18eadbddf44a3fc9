"""Looks up the names of hosts beside everything else, and remembers the answers.

asyncio and the libraries on it (aiohttp, asyncpg, the archivers' clients) look names up by
``loop.getaddrinfo``, which calls the C library in a thread of asyncio's pool. A name server that
swallows questions keeps each such thread for half a minute, and a few dead names stop the process.
:class:`ResolvingLoop` has that one method answered here, so that whoever looks a name up in a
service passes this module.

A name is looked for in the file of hosts, then by DNS without a thread, and where DNS knows no such
name by the C library in a thread of its own, for whatever else the host is set up to ask (mDNS,
LDAP). Answers are kept as long as their records say (RFC 1035), and so is the answer that there is
no such name (RFC 2308), within the bounds below. When name servers do not answer, the
addresses known before are used (RFC 8767), and the question is not put again for half a minute.
Questions for one name at a time are one question.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver

from node.runtime.threads import aside

KNOWN_MAX = 4_096
"""Maximum number of names whose answers are kept."""
AT_ONCE_MAX = 64
"""Maximum number of look-ups under way; further ones wait."""

PATIENCE_S = 5.0
"""Time that name servers have for an answer, and then the C library."""
STALE_AFTER_S = 0.3
"""Time that a renewal has before the addresses known before are used."""
STALE_S = 86_400.0
"""Time for which addresses are used whose renewal fails."""
AGAIN_S = 30.0
"""Time for which a question that was not answered is not put again."""
KEPT_S = (1.0, 3_600.0)
"""Bounds of the time for which addresses are kept."""
ABSENT_S = (5.0, 300.0)
"""Bounds of the time for which it is kept that there is no such name."""
UNTIMED_S = 30.0
"""Time for which addresses without a time to live are kept: those of the C library."""

_KINDS: dict[int, str] = {socket.AF_INET6: "AAAA", socket.AF_INET: "A"}
_LOCAL = ("localhost", ".localhost")
_LOOPBACK: dict[int, str] = {socket.AF_INET6: "::1", socket.AF_INET: "127.0.0.1"}


@dataclass(frozen=True)
class _Answer:
    """Addresses of a name, or the error number of the C library's ``getaddrinfo``.

    ``until`` is when it is asked for anew, by the loop's clock; ``stale_until`` is how long the
    addresses are used if that fails.
    """

    addresses: tuple[str, ...]
    fault: int | None
    until: float
    stale_until: float = 0.0

    def told(self, host: str) -> tuple[str, ...]:
        """Return the addresses.

        :raises socket.gaierror: there are none.
        """
        if self.fault is not None:
            raise _error(self.fault, host)
        return self.addresses


@dataclass(frozen=True)
class _Found:
    """The addresses of one kind that name servers have for a name, and for how long (s).

    ``answered`` is false if they did not say anything.
    """

    addresses: tuple[str, ...] = ()
    seconds: float = UNTIMED_S
    answered: bool = True


class NameServers:
    """The name servers of this host, which may be others tomorrow."""

    def __init__(self, configuration: Path = Path("/etc/resolv.conf"), port: int = 53) -> None:
        """``configuration`` names them; they answer at ``port``."""
        self._configuration = configuration
        self._port = port
        self._stamp: tuple[int, int] | None = None
        self._servers: dns.asyncresolver.Resolver | None = None

    def current(self) -> dns.asyncresolver.Resolver | None:
        """Return the name servers as they are set up now; None if there are none."""
        try:
            status = self._configuration.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                servers = dns.asyncresolver.Resolver(str(self._configuration))
                servers.port, servers.lifetime = self._port, PATIENCE_S
                servers.timeout = PATIENCE_S / 2
                self._servers, self._stamp = servers, stamp
        except (OSError, dns.exception.DNSException):
            self._servers, self._stamp = None, None
        return self._servers


class Resolver:
    """Finds the addresses of names."""

    def __init__(
        self,
        configuration: Path = Path("/etc/resolv.conf"),
        hosts: Path = Path("/etc/hosts"),
        port: int = 53,
    ) -> None:
        """``configuration`` names the name servers, which answer at ``port``."""
        self._servers = NameServers(configuration, port)
        self._hosts = hosts
        self._known: dict[tuple[str, int], _Answer] = {}
        self._pending: dict[tuple[str, int], asyncio.Task[_Answer]] = {}
        self._places = asyncio.Semaphore(AT_ONCE_MAX)

    async def addresses(self, host: str, family: int = socket.AF_UNSPEC) -> tuple[str, ...]:
        """Return the addresses of a name, those to which this host has a way first.

        :raises socket.gaierror: there are none, or nobody answers who would know.
        """
        key = (host.lower().removesuffix("."), family)
        now = asyncio.get_running_loop().time()
        known = self._known.get(key)
        if known is not None and now < known.until:
            return known.told(host)
        if (pending := self._pending.get(key)) is None:
            pending = asyncio.create_task(self._renew(*key), name=f"look up {host}")
            self._pending[key] = pending
        if known is not None and known.addresses and now < known.stale_until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STALE_AFTER_S):
                    return (await asyncio.shield(pending)).told(host)
            return known.addresses
        return (await asyncio.shield(pending)).told(host)

    async def _renew(self, host: str, family: int) -> _Answer:
        """Look a name up, and keep the answer."""
        key = (host, family)
        try:
            async with self._places:
                answer = await self._look_up(host, family)
        finally:
            del self._pending[key]
        known, now = self._known.pop(key, None), asyncio.get_running_loop().time()
        if answer.fault == socket.EAI_AGAIN and known is not None and now < known.stale_until:
            answer = _Answer(known.addresses, None, answer.until, known.stale_until)
        self._known[key] = answer
        while len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        return answer

    async def _look_up(self, host: str, family: int) -> _Answer:
        families = [each for each in _KINDS if family in (socket.AF_UNSPEC, each)]
        if listed := self._addresses_in_file(host, families):
            return self._answer_of(listed, UNTIMED_S)
        found = await self._ask_servers(host, families)
        addresses = [address for each in found for address in each.addresses]
        if addresses:
            return self._answer_of(addresses, min(each.seconds for each in found if each.addresses))
        now = asyncio.get_running_loop().time()
        if not all(each.answered for each in found):
            return _Answer((), socket.EAI_AGAIN, now + AGAIN_S)
        entries: list[Any] = []
        with contextlib.suppress(OSError, UnicodeError):
            async with asyncio.timeout(PATIENCE_S):
                look_up = partial(socket.getaddrinfo, host, None, family, socket.SOCK_DGRAM)
                entries = await aside(look_up, f"look up {host}")
        if entries:
            return self._answer_of(dict.fromkeys(str(entry[4][0]) for entry in entries), UNTIMED_S)
        seconds = [each.seconds for each in found] or [UNTIMED_S]
        now = asyncio.get_running_loop().time()
        return _Answer((), socket.EAI_NONAME, now + _within_bounds(min(seconds), ABSENT_S))

    def _answer_of(self, addresses: Any, seconds: float) -> _Answer:
        until = asyncio.get_running_loop().time() + _within_bounds(seconds, KEPT_S)
        return _Answer(tuple(sorted(addresses, key=_is_unreachable)), None, until, until + STALE_S)

    def _addresses_in_file(self, host: str, families: Sequence[int]) -> list[str]:
        found = []
        with contextlib.suppress(OSError):
            for line in self._hosts.read_text("utf-8", "replace").splitlines():
                address, *names = line.partition("#")[0].split() or [""]
                if host in map(str.lower, names) and _family(address) in families:
                    found.append(address)
        if not found and host.endswith(_LOCAL):
            return [_LOOPBACK[each] for each in families]
        return list(dict.fromkeys(found))

    async def _ask_servers(self, host: str, families: Sequence[int]) -> list[_Found]:
        """Return what name servers say; nothing if this host has none."""
        if (servers := self._servers.current()) is None:
            return []
        return await asyncio.gather(
            *(_ask_for_records(servers, host, _KINDS[each]) for each in families)
        )


async def _ask_for_records(servers: dns.asyncresolver.Resolver, host: str, kind: str) -> _Found:
    try:
        # The library's own limit is by the wall clock, which may be set meanwhile.
        async with asyncio.timeout(PATIENCE_S):
            answer = await servers.resolve(host, kind, search=True)
    except dns.resolver.NXDOMAIN as absent:
        responses = absent.kwargs["responses"].values()
        return _Found((), min((_lifetime(each) for each in responses), default=UNTIMED_S))
    except dns.resolver.NoAnswer as empty:
        return _Found((), _lifetime(empty.kwargs["response"]))
    except (dns.exception.Timeout, dns.resolver.NoNameservers, TimeoutError, OSError):
        return _Found(answered=False)
    except (dns.exception.DNSException, UnicodeError):  # no name can be like that
        return _Found()
    addresses = tuple(record.to_text() for record in answer)
    return _Found(addresses, answer.chaining_result.minimum_ttl)


def _lifetime(response: Any) -> float:
    """Return how long it holds that there is no such record (s), as its answer says."""
    try:
        return float(response.resolve_chaining().minimum_ttl)
    except dns.exception.DNSException:
        return UNTIMED_S


def _within_bounds(seconds: float, bounds: tuple[float, float]) -> float:
    return min(max(seconds, bounds[0]), bounds[1])


def _family(address: str) -> int | None:
    with contextlib.suppress(ValueError):
        version = ipaddress.ip_address(address).version
        return socket.AF_INET if version == 4 else socket.AF_INET6  # noqa: PLR2004 - the version
    return None


def _is_unreachable(address: str) -> bool:
    """Return whether this host has no way to an address; nothing is sent."""
    with (
        contextlib.suppress(OSError),
        socket.socket(_family(address) or socket.AF_INET, socket.SOCK_DGRAM) as asking,
    ):
        asking.connect((address, 9))
        return False
    return True


def _error(number: int, host: str) -> socket.gaierror:
    words = {socket.EAI_NONAME: "no such name", socket.EAI_AGAIN: "name servers do not answer"}
    return socket.gaierror(number, f"{words[number]}: {host}")


class ResolvingLoop(asyncio.SelectorEventLoop):
    """An event loop whose look-ups of names occupy no thread that others wait for."""

    def __init__(self, resolver: Resolver | None = None) -> None:
        """Look up by ``resolver``, or by the host's settings."""
        super().__init__()
        self.resolver = resolver or Resolver()

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the name of asyncio's
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        """Return addresses as :func:`socket.getaddrinfo` does.

        :raises socket.gaierror: there are none.
        """
        numeric = partial(
            socket.getaddrinfo,
            port=port,
            family=family,
            type=type,
            proto=proto,
            flags=flags | socket.AI_NUMERICHOST,
        )
        with contextlib.suppress(socket.gaierror, UnicodeError):
            return numeric(host)
        name = host.decode() if isinstance(host, bytes) else host
        if not name or flags & socket.AI_NUMERICHOST:
            return numeric(host)
        addresses = await self.resolver.addresses(name, family)
        return [entry for address in addresses for entry in numeric(address)]

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """Return host and port of an address as :func:`socket.getnameinfo` does."""
        if flags & socket.NI_NUMERICHOST:
            return socket.getnameinfo(sockaddr, flags)
        return await aside(partial(socket.getnameinfo, sockaddr, flags), "name an address")
