"""The certificates that this node shows, renewed while it runs.

People are shown the one of the settings (``tls_cert``), or else one that the node made; other nodes
always one that the node's key has signed (``node/trust/certificates.py``). Both files of a
certificate from outside are looked at every minute, and at once on SIGHUP. One that cannot be used
changes nothing: the earlier one stays, and the log, an event, and ``/metrics`` say so.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from node.model import times
from node.model.errors import HostError, ParleyError
from node.runtime.settings import Settings
from node.runtime.threads import aside
from node.store.core import Core
from node.store.notices import notify
from node.trust.certificates import LIFE, RENEWED_BEFORE, OwnCertificate, pem_for_nodes
from node.trust.key_files import CurrentKey
from node.trust.private_files import read_private, replace_private
from node.trust.tls import ServedCertificate, read_certificate, show_nodes_certificate

WARNED_BEFORE = 14 * times.DAY
_FOR_PEOPLE = "tls.pem"
_FOR_NODES = "tls-nodes.pem"

log = structlog.get_logger()

Stamp = tuple[tuple[int, int, int], ...]
"""By file of the settings: inode, and when its content and its permissions changed."""


class ServerCertificates:
    """The certificates shown to those who connect to it."""

    def __init__(self, core: Core, key: CurrentKey) -> None:
        self._database = core.database
        self._clock = core.clock
        self._settings = core.settings
        self._key = key
        self._made_with: str | None = None
        self._people: ServedCertificate | None = None
        self._nodes: ServedCertificate | None = None
        self._context: ssl.SSLContext | None = None
        self._files_stamp: Stamp = ()
        self._warned_of: int | None = None
        self._renewing = asyncio.Lock()
        self.fault: str | None = None
        """The reason why the certificate of the settings could not be read again, if so."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context of a connection that begins now."""
        if self._context is None:
            msg = "the certificates were not loaded"
            raise RuntimeError(msg)
        return self._context

    @property
    def expires_at(self) -> int:
        """The instant at which the certificate for people expires."""
        return 0 if self._people is None else self._people.expires_at

    @property
    def warnings(self) -> list[str]:
        """The sentences on what the owner ought to do about the certificate for people."""
        warnings = [] if self.fault is None else [f"{self.fault}; the earlier one stays in use"]
        given, now = self._settings.tls_cert, self._clock.now()
        if given is not None and self.expires_at <= now + WARNED_BEFORE:
            verb = "expired" if self.expires_at <= now else "expires"
            at = times.to_the_second(self.expires_at)
            warnings.append(f"the certificate {given} {verb} at {at}; renew it")
        return warnings

    def load(self) -> None:
        """Read or make the certificates.

        :raises HostError: those of the settings cannot be used, or a file cannot be written.
        """
        folder, given = self._settings.state_dir, self._settings.tls_cert
        if self._is_due():
            self._write_certificates(folder)
            self._nodes = read_certificate(folder / _FOR_NODES)
            if given is None:
                self._people = read_certificate(folder / _FOR_PEOPLE)
        try:
            if given is not None:
                self._files_stamp = _files_stamp(self._settings)
                self._people = read_certificate(given, self._settings.tls_key)
        finally:
            if self._people is not None and self._nodes is not None:
                self._context = show_nodes_certificate(self._people.context, self._nodes.context)

    def _write_certificates(self, folder: Path) -> None:
        """Write both certificates of this node; the one for people only if it has to be new."""
        now, names = self._clock.now(), _certificate_names(self._settings)
        own = OwnCertificate.of_pem(read_private(folder / _FOR_PEOPLE) or b"")
        if own is None or not own.serves(names, now):
            own = OwnCertificate.make(own.key if own else None, names, now)
            replace_private(folder / _FOR_PEOPLE, own.pem)
        key = self._key.current
        replace_private(folder / _FOR_NODES, pem_for_nodes(key, own.key, now))
        self._made_with = key.public_text

    async def renew(self) -> None:
        """Make or read again what expires, or has changed; the earlier one stays if that fails."""
        async with self._renewing:
            stamp = await aside(partial(_files_stamp, self._settings), "look at certificates")
            if self._is_due() or stamp != self._files_stamp:
                await self._reload()
        await self._warn()

    def _is_due(self) -> bool:
        """Return whether a certificate of this node's own expires, or has another key by now."""
        if self._made_with != self._key.current.public_text:
            return True
        made = [self._nodes] if self._settings.tls_cert else [self._nodes, self._people]
        now = self._clock.now()
        return any(
            each is None or not RENEWED_BEFORE < each.expires_at - now <= LIFE for each in made
        )

    async def _reload(self) -> None:
        try:
            await aside(self.load, "read certificates")
        except HostError as error:
            if self.fault != error.detail:
                log.warning("the certificate stays as it was", fault=error.detail)
                self.fault = error.detail
                await self._record_state("broken")
            return
        self.fault = None
        log.info("certificates loaded", expires_at=times.format_instant(self.expires_at))
        await self._record_state("loaded")

    async def _warn(self) -> None:
        if self._settings.tls_cert is None or self._warned_of == self.expires_at:
            return
        if self.expires_at <= self._clock.now() + WARNED_BEFORE:
            self._warned_of = self.expires_at
            log.warning("a certificate expires", expiry=self.warnings[-1])
            await self._record_state("expiring")

    async def _record_state(self, state: str) -> None:
        try:
            async with self._database.transaction() as connection:
                await notify(connection, "certificate", self._settings.name, state)
        except ParleyError as error:
            log.warning("no event about a certificate", state=state, error=error.detail)


def _certificate_names(settings: Settings) -> list[str]:
    """Return the names and addresses by which people may reach this node."""
    url = urlsplit(settings.public_url).hostname
    given = [url, settings.listen_host, settings.address, settings.name]
    return [*(name for name in given if name), "localhost", "127.0.0.1", "::1"]


def _files_stamp(settings: Settings) -> Stamp:
    """Return inode and times of the configured files; the stamp changes when one does."""
    files = (settings.tls_cert, settings.tls_key)
    return tuple(_file_state(path) for path in files if path is not None)


def _file_state(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns
