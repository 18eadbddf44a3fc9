"""Targets on loopback with right, wrong or no answers, and runs against them."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.server
import ipaddress
import os
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from node.model.targets import Network, TargetRules
from node.plugins import registry
from node.plugins.contracts import Merged, Output, Part, PartContext, Party

DAY = dt.timedelta(days=1)


def measured(
    test_name: str,
    tool_name: str,
    *,
    trusting: Path | None = None,
    addresses: dict[str, str] | None = None,
    rules: TargetRules | None = None,
    not_asked: tuple[Network, ...] | None = None,
    agent: str = "parley",
    **fields: Any,
) -> Merged:
    """Run the tool's own argv now, and return the parsed and merged result."""
    test, tool = registry.tests()[test_name], registry.tools()[tool_name]
    spec = test.spec_model.model_validate(fields)
    starts = time.time_ns() // 1000
    ends = starts + tool.duration(spec)
    parties = (Party("a", "127.0.0.1"),)
    part = PartContext(
        spec, 0, parties, starts, ends, addresses or {}, None, rules, not_asked, agent
    )
    command = tool.command(part)
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    if trusting is not None:
        environment["SSL_CERT_FILE"] = str(trusting)
    process = subprocess.run(
        command.argv,
        input=command.stdin,
        capture_output=True,
        env=environment,
        timeout=30,
        check=False,
    )
    result = tool.read(part, Output(process.returncode, process.stdout, process.stderr))
    return test.merge(spec, [Part(0, "a", result)])


_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    key_cert_sign=True,
    crl_sign=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates, and stores them in files for servers and clients."""

    def __init__(self, folder: Path, name: str = "the authority") -> None:
        """Create the authority; its own certificate is in ``file``."""
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = self._certificate(self._name, self._key, dt.timedelta(0), 10 * DAY)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        own = own.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
        ).add_extension(_SIGNS_CERTIFICATES, critical=True)
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self._own = own.sign(self._key, hashes.SHA256())
        self.file.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        since: dt.timedelta,
        until: dt.timedelta,
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - since - DAY)
            .not_valid_after(now + until)
            .add_extension(  # Python 3.13 accepts none without
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )

    def context(self, *names: str, days_left: float = 5, alpn: str = "http/1.1") -> ssl.SSLContext:
        """Return a server's TLS settings with a certificate for these names and addresses."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate(*names, days_left=days_left))
        context.set_alpn_protocols([alpn])
        return context

    def certificate(self, *names: str, days_left: float = 5) -> Path:
        """Return a file with a certificate for these names and addresses, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        built = self._certificate(subject, key, 20 * DAY, days_left * DAY)
        built = built.add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
        signed = built.sign(self._key, hashes.SHA256())
        path = self._folder / f"{signed.serial_number:x}.pem"
        path.write_bytes(
            signed.public_bytes(serialization.Encoding.PEM)
            + self._own.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return path


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Pages(http.server.BaseHTTPRequestHandler):
    """Serves pages by their path; ``/slow`` delays the answer by 80 ms."""

    protocol_version = "HTTP/1.1"
    timeout = 5

    def do_GET(self) -> None:
        """Answer by the path."""
        if self.path.startswith("/again"):
            left = int(self.path.removeprefix("/again"))
            self._answer(302, b"moved", Location=f"/again{left - 1}" if left else "/page")
        elif self.path == "/away":
            self._answer(302, b"", Location="ftp://127.0.0.1/x")
        elif self.path == "/broken":
            self._answer(200, b"half of it", length=1000)
        elif self.path == "/error":
            self._answer(500, b"sorry")
        elif self.path == "/header":
            self._answer(200, (self.headers["X-Probe"] or self.headers["User-Agent"]).encode())
        elif self.path == "/large":
            self._answer(200, b"x" * 500_000)
        else:
            if self.path == "/slow":
                threading.Event().wait(0.08)
            self._answer(200, "it works: größer".encode())

    do_HEAD = do_GET  # noqa: N815 - the name the library looks for

    def _answer(self, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length or len(body)))
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Log nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        # TLS in the request's thread, so that a client that aborts does not block the others.
        with contextlib.suppress(OSError):
            if self.context is None:
                super().finish_request(request, client_address)
                return
            with self.context.wrap_socket(request, server_side=True) as secured:
                super().finish_request(secured, client_address)


class _Server6(_Server):
    address_family = socket.AF_INET6


@contextlib.contextmanager
def pages(context: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> Iterator[int]:
    """Serve pages, over TLS if there is a context; yield the port."""
    server = (_Server6 if ":" in address else _Server)((address, 0), Pages)
    server.context = context
    with _serving(server):
        yield server.server_address[1]


@contextlib.contextmanager
def talking(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve TCP, calling ``talk`` for each connection; yield the port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                talk(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server, _serving(server):
        yield server.server_address[1]


@contextlib.contextmanager
def answering(answer: Callable[[bytes], bytes | None]) -> Iterator[int]:
    """Serve DNS over UDP and TCP on one port; None from ``answer`` means silence."""

    class Datagram(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            question, endpoint = self.request
            reply = answer(question)
            if reply is not None:
                endpoint.sendto(reply, self.client_address)

    def talk(connection: socket.socket) -> None:
        reply = answer(connection.recv(4096)[2:])
        if reply is not None:
            connection.sendall(len(reply).to_bytes(2) + reply)

    with (
        talking(talk) as port,
        socketserver.UDPServer(("127.0.0.1", port), Datagram) as server,
        _serving(server),
    ):
        yield port


@contextlib.contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
