"""TLS: what a node offers, and what those trust who connect to one.

Versions and ciphers are TLS 1.3, or 1.2 with forward secrecy and an AEAD; nothing is compressed,
and nothing is negotiated a second time.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TypedDict

from cryptography import x509

from node.model.errors import HostError
from node.trust.certificates import SERVER_NAME, anchor_of, ends_at

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class TlsOptions(TypedDict, total=False):
    """The options by which a request checks a server, named as aiohttp names them."""

    ssl: ssl.SSLContext
    server_hostname: str


@lru_cache(maxsize=1024)
def _pinned_context(*keys: str) -> ssl.SSLContext:
    context = _strict_context(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.load_verify_locations(cadata=b"".join(map(anchor_of, keys)))
    return context


def pinned_options(*keys: str) -> TlsOptions:
    """Return options that trust the node with one of these keys, by any name, and nobody else.

    It may also have a later key for which one of these vouches (``certificates.bridge``).
    """
    return {"ssl": _pinned_context(*keys), "server_hostname": SERVER_NAME}


@cache
def _public_context() -> ssl.SSLContext:
    return _strict_context(ssl.create_default_context())


def public() -> TlsOptions:
    """Return options that trust what this host's authorities say about the name in the URL."""
    return {"ssl": _public_context()}


@cache
def _unchecked_context() -> ssl.SSLContext:
    context = _strict_context(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def unchecked_options() -> TlsOptions:
    """Return options that trust anybody: only to learn which key a server says it has."""
    return {"ssl": _unchecked_context(), "server_hostname": SERVER_NAME}


def anybody() -> TlsOptions:
    """Return options that trust whoever answers, for hosts whose certificates nobody signs.

    Unlike :func:`unchecked_options`, the host is asked for by the name in the URL.
    """
    return {"ssl": _unchecked_context()}


@dataclass(frozen=True)
class ServedCertificate:
    """A certificate that a server shows, ready for use, and when it expires."""

    context: ssl.SSLContext
    expires_at: int


def read_certificate(certificate: Path, key: Path | None = None) -> ServedCertificate:
    """Read a certificate with its chain and its key, which may be in the same file.

    :raises HostError: they cannot be used; the message says why.
    """
    context = _strict_context(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
        leaf = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = f"{certificate}" if key is None else f"{certificate} with {key}"
        msg = f"the certificate {files} cannot be used: {_sentence(error)}"
        raise HostError(msg) from error
    return ServedCertificate(context, ends_at(leaf))


def show_nodes_certificate(people: ssl.SSLContext, nodes: ssl.SSLContext) -> ssl.SSLContext:
    """Make a context for people show that of nodes to who asks for a node; return it."""

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        if name == SERVER_NAME:
            connection.context = nodes

    people.sni_callback = choose
    return people


def _strict_context(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(_CIPHERS)
    return context


def _no_password() -> str:
    raise ValueError("its key has a password; store it without one, readable by the service only")


def _sentence(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        words = (error.reason or "").replace("_", " ").lower()
        return words or "it is not a certificate with its key in PEM form"
    return getattr(error, "strerror", None) or str(error)
