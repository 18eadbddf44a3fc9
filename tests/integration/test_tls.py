"""TLS: nodes trust keys, not names; strangers who dawdle cost little; certificates are renewed."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from node.api import connections, middleware
from node.model import times
from node.model.errors import Conflict, HostError, PeerAnswered, PeerUnreachable
from node.model.wire.nodes import NodeAddition
from node.operation.metrics import registry_of
from node.operation.readiness import readiness_of
from node.runtime.clock import SystemClock
from node.trust.certificates import LIFE, SERVER_NAME, OwnCertificate, TlsKey, pem_for_nodes
from node.trust.keys import NodeKey
from node.trust.tls import pinned_options, unchecked_options
from node.trust.tls import read_certificate as served_certificate
from tests.conftest import NewDatabase
from tests.support.loopback import serving
from tests.support.patience import PATIENCE_S
from tests.support.served_nodes import Served, served

CLOCK = SystemClock()
"""OpenSSL reads the host's clock, so these nodes do, too."""


@pytest.fixture
async def a(new_database: NewDatabase, tmp_path: Path) -> AsyncIterator[Served]:
    """Return a node with TLS."""
    async with served("a", await new_database(), CLOCK, _folder(tmp_path, "a"), tls=True) as node:
        yield node


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder


def _port(node: Served) -> int:
    return node.settings.listen_port


def _url(node: Served) -> str:
    assert node.card.url is not None
    return node.card.url


@contextlib.asynccontextmanager
async def _stranger(pem: bytes, folder: Path) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve with the certificate in a PEM; yield the URL and the paths that are asked for."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    file = folder / "stranger.pem"
    file.write_bytes(pem)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with serving(app, served_certificate(file).context) as url:
        yield url, asked


def _tls_key() -> TlsKey:
    return OwnCertificate.make(None, [], CLOCK.now()).key


@pytest.mark.parametrize("made_by", ["another node", "a stranger", "the node, long ago"])
async def test_a_wrong_certificate(a: Served, tmp_path: Path, made_by: str) -> None:
    """Nothing is sent to who shows a certificate that the pinned key has not signed of late."""
    key, now = NodeKey.generate(), CLOCK.now()
    pems = {
        "another node": pem_for_nodes(NodeKey.generate(), _tls_key(), now),
        "a stranger": OwnCertificate.make(None, ["127.0.0.1", SERVER_NAME], now).pem,
        "the node, long ago": pem_for_nodes(key, _tls_key(), now - 2 * LIFE),
    }
    async with _stranger(pems[made_by], tmp_path) as (url, asked):
        with pytest.raises(PeerUnreachable, match="not signed with the key") as refused:
            await a.peers.card(url, key.identity)
        with pytest.raises(PeerUnreachable, match="not signed with the key"):
            await a.peers.client_of(key.identity, "b", url).limits()
        with pytest.raises(PeerUnreachable, match="get its identity from its owner"):
            await a.registration.add(NodeAddition(url=url))
        assert ("has expired" in refused.value.detail) is (made_by == "the node, long ago")
        assert asked == []


async def test_a_pinned_node_is_never_asked_without_tls(a: Served) -> None:
    """A server that has no TLS any more is not asked over plain HTTP instead."""
    plain: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(PeerUnreachable):
            await a.peers.client_of(NodeKey.generate().identity, "b", url).limits()
    assert plain
    assert all(first.startswith(b"\x16") for first in plain)


async def test_a_node_that_is_known_by_a_public_certificate(
    a: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that authorities of this host vouch for is enough; the answers are signed."""
    own = OwnCertificate.make(None, ["127.0.0.1"], CLOCK.now())
    authorities = ssl.create_default_context(cadata=own.certificate.public_bytes(Encoding.DER))
    monkeypatch.setattr("node.client.peers.public", lambda: {"ssl": authorities})
    async with _stranger(own.pem, tmp_path) as (url, asked):
        peer = a.peers.client_of(NodeKey.generate().identity, "b", url)
        for _ in range(2):
            with pytest.raises(PeerAnswered, match="answer that cannot be trusted"):
                await peer.limits()
        assert len(asked) == 2
        name = url.replace("127.0.0.1", "localhost")
        with pytest.raises(PeerUnreachable, match="name is not publicly certified"):
            await a.peers.card(name, NodeKey.generate().identity)


@pytest.mark.nightly
async def test_nodes_are_added_by_their_keys(
    a: Served, new_database: NewDatabase, tmp_path: Path
) -> None:
    """A node with a certificate of its own is added by its key, and answers from then on."""
    async with served("b", await new_database(), CLOCK, _folder(tmp_path, "b"), tls=True) as b:
        with pytest.raises(PeerUnreachable, match="without its key"):
            await a.registration.add(NodeAddition(url=_url(b)))
        with pytest.raises(PeerUnreachable, match="not signed with the key"):
            await a.registration.add(NodeAddition(url=_url(b), identity=a.card.identity))
        known = await a.registration.add(NodeAddition(url=_url(b), identity=b.card.identity))
        await b.registration.add(NodeAddition(url=_url(a), identity=a.card.identity))
        await CLOCK.sleep_until((b.started // times.SECOND + 1) * times.SECOND)  # or it is stale
        assert (await a.peer(known.identity).limits()).model_dump()
        plain = NodeAddition(url=_url(b).replace("https", "http"), identity=a.card.identity)
        with pytest.raises(Conflict):
            await a.registration.add(plain)


async def test_one_port_for_both(a: Served) -> None:
    """This host is served over TLS and over plain HTTP, at the same port."""
    async with aiohttp.ClientSession() as session:
        for url in (f"http://127.0.0.1:{_port(a)}", _url(a)):
            async with session.get(f"{url}/healthz", **pinned_options(a.card.identity)) as answer:
                assert answer.status == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(f"{_url(a)}/healthz")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_old_versions_and_weak_ciphers(a: Served) -> None:
    """TLS begins at 1.2, with forward secrecy and an AEAD, without compression or renegotiation."""
    for maximum, ciphers, wanted in (
        (ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0", None),
        (ssl.TLSVersion.TLSv1_2, "AES128-SHA:AES128-GCM-SHA256", None),
        (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2"),
        (ssl.TLSVersion.TLSv1_3, "ALL", "TLSv1.3"),
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers(ciphers)
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = maximum
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", _port(a), ssl=context)
        except (ssl.SSLError, ConnectionError):
            assert wanted is None
            continue
        spoken = writer.get_extra_info("ssl_object")
        assert (spoken.version(), spoken.compression()) == (wanted, None)
        writer.close()


async def test_other_hosts_are_refused_plain_http(
    a: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain HTTP of another host is refused in words before anything is looked up."""
    monkeypatch.setattr(middleware, "_is_from_here", lambda _: False)
    plain = f"http://127.0.0.1:{_port(a)}"
    async with aiohttp.ClientSession() as session:
        for path in ("/healthz", "/v1/nodes", "/", "/nowhere"):
            async with session.get(f"{plain}{path}") as answer:
                document = await answer.json(content_type=None)
                assert (answer.status, answer.content_type) == (403, "application/problem+json")
                assert "use https" in document["detail"]
                assert "revoke" not in document["detail"]
        async with session.get(f"{_url(a)}/healthz", **pinned_options(a.card.identity)) as answer:
            assert answer.status == 200
        token = {"Authorization": "Bearer x"}
        async with session.get(f"{plain}/v1/tasks", headers=token) as answer:
            assert "revoke the token" in (await answer.json(content_type=None))["detail"]


async def _closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the other side has ended the connection."""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            await reader.read()
    return True


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HALF = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a handshake."""


async def _open_silent(node: Served, count: int) -> list[Streams]:
    """Open connections that say nothing, or half a handshake."""
    opened = []
    for number in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", _port(node))
        writer.write((b"", HALF, HALF[:1])[number % 3])
        opened.append((reader, writer))
    return opened


@pytest.mark.nightly
async def test_silent_connections(a: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that dawdle in their handshake harm nobody, and end after a while."""
    monkeypatch.setattr(connections, "OPENING_S", 1.0)
    silent = await _open_silent(a, 200)
    async with (
        asyncio.timeout(PATIENCE_S),
        aiohttp.ClientSession() as session,
        session.get(f"{_url(a)}/healthz", **pinned_options(a.card.identity)) as answer,
    ):
        assert answer.status == 200
    assert all([await _closed(reader) for reader, _ in silent])
    for _, writer in silent:
        writer.close()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    again = await _open_silent(a, 20)
    assert all([await _closed(reader) for reader, _ in again])
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 20
    for _, writer in again:
        writer.close()


async def test_handshakes_count_as_connections(new_database: NewDatabase, tmp_path: Path) -> None:
    """A connection that dawdles in its handshake makes room for the next one."""
    folder = _folder(tmp_path, "a")
    async with served(
        "a", await new_database(), CLOCK, folder, tls=True, connections_max=10
    ) as node:
        silent = await _open_silent(node, 10)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{_url(node)}/healthz", **unchecked_options()) as answer,
        ):
            assert answer.status == 200
        assert await _closed(silent[0][0])
        for _, writer in silent:
            writer.close()


def _write(own: OwnCertificate, certificate: Path, key: Path) -> None:
    private, mark, public = own.pem.partition(b"-----BEGIN CERTIFICATE-----")
    certificate.write_bytes(mark + public)
    key.write_bytes(private)


async def _shown(node: Served) -> x509.Certificate:
    """Return the certificate that people are shown."""
    context = unchecked_options()["ssl"]
    _, writer = await asyncio.open_connection("127.0.0.1", _port(node), ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(shown)


async def _figures(node: Served) -> dict[str, float]:
    registry = await registry_of(node)
    return {name: registry.get_sample_value(name) or 0.0 for name in _FIGURES}


_FIGURES = ("parley_certificate_broken", "parley_certificate_expires_seconds", "parley_plain_http")


async def test_a_certificate_from_outside_is_renewed(
    new_database: NewDatabase, tmp_path: Path
) -> None:
    """A new certificate is shown without a restart, a broken one is not, and streams stay open."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    now = CLOCK.now()
    first, second = (OwnCertificate.make(None, ["a.example"], now) for _ in range(2))
    _write(first, certificate, key)
    files = {"tls_cert": certificate, "tls_key": key}
    folder = _folder(tmp_path, "a")
    async with (
        served("a", await new_database(), CLOCK, folder, tls=True, **files) as node,
        aiohttp.ClientSession() as session,
        session.get(f"{_url(node)}/v1/events", **pinned_options(node.card.identity)) as stream,
    ):
        assert await _shown(node) == first.certificate
        certificate.write_text("no certificate")
        await node.renew_certificates()
        assert await _shown(node) == first.certificate
        assert (await _figures(node))["parley_certificate_broken"] == 1
        (warning,) = (await readiness_of(node)).warnings
        assert str(certificate) in warning
        assert "the earlier one stays in use" in warning
        _write(second, certificate, key)
        await node.renew_certificates()
        assert await _shown(node) == second.certificate
        figures = await _figures(node)
        assert figures["parley_certificate_broken"] == 0
        left = figures["parley_certificate_expires_seconds"] * times.SECOND
        assert abs(left - (LIFE - 7 * times.DAY)) < times.HOUR
        assert (await readiness_of(node)).warnings == ()
        soon = OwnCertificate.make(None, ["a.example"], now - LIFE + 14 * times.DAY)
        _write(soon, certificate, key)
        await node.renew_certificates()
        (warning,) = (await readiness_of(node)).warnings
        assert "expires at" in warning
        assert not stream.content.at_eof()
        async with session.get(
            f"{_url(node)}/healthz", **pinned_options(node.card.identity)
        ) as answer:
            assert answer.status == 200  # nodes do not notice


async def test_own_certificates_are_renewed(a: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node makes new certificates long before the earlier ones expire, with the same TLS key."""
    earlier = await _shown(a)
    await a.renew_certificates()
    assert await _shown(a) == earlier
    late = CLOCK.now() + LIFE - 60 * times.DAY
    monkeypatch.setattr(a.certificates, "_clock", _Late(late))
    await a.renew_certificates()
    later = await _shown(a)
    assert later.not_valid_after_utc > earlier.not_valid_after_utc
    assert later.public_key() == earlier.public_key()
    assert {f.stat().st_mode & 0o777 for f in a.settings.state_dir.glob("tls*.pem")} == {0o600}


class _Late:
    """A clock that is ahead."""

    def __init__(self, now: int) -> None:
        self._now = now

    def now(self) -> int:
        """Return its instant."""
        return self._now


@pytest.mark.nightly
async def test_a_certificate_that_cannot_be_used(new_database: NewDatabase, tmp_path: Path) -> None:
    """A node does not start with a certificate that it cannot use, and says why."""
    other = OwnCertificate.make(None, [], CLOCK.now())
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    _write(other, certificate, key)
    _write(OwnCertificate.make(None, [], CLOCK.now()), tmp_path / "x", key)
    for number, (files, words) in enumerate(
        (
            ({"tls_cert": tmp_path / "none"}, "No such file"),
            ({"tls_cert": certificate}, "cannot be used"),
            ({"tls_cert": certificate, "tls_key": key}, "key values mismatch"),
        )
    ):
        dsn, folder = await new_database(), _folder(tmp_path, str(number))
        with pytest.raises(HostError, match=words):
            async with served("a", dsn, CLOCK, folder, tls=True, **files):
                pass
