"""Certificates for TLS: those that a node makes for itself, and what trusts them.

A node has one TLS key (P-256, which every client supports) and two certificates for it. The one for
people is signed by the TLS key itself: browsers show it and ask. The one for other nodes is signed
by the node's Ed25519 key; they connect with the name :data:`SERVER_NAME`, which stands for "the
node that answers here", and trust exactly the key that they have pinned. So nodes need no name,
and no authority, and do not notice if the owner gives people another certificate.

The trusted certificate of a pinned key is made by whoever trusts it: name and public key are all
that counts in it, and its own signature, which only the node could make, is never checked.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from node.model import times
from node.trust.identities import public_of
from node.trust.keys import NodeKey

SERVER_NAME = "node.parley.invalid"
"""The name of every node in the certificate for nodes; no host can have it (RFC 6761)."""
LIFE = 397 * times.DAY
"""Browsers refuse more than this."""
RENEWED_BEFORE = 90 * times.DAY
_BACKDATED = 7 * times.DAY
"""Clocks of other hosts may be behind this one's."""
_FIRST = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)

TlsKey = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class OwnCertificate:
    """A TLS key with its certificate for people."""

    key: TlsKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, key: TlsKey | None, names: Iterable[str], now: int) -> OwnCertificate:
        """Sign a certificate for these host names and addresses with a TLS key, or a new one."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = _name_of("parley")
        builder = _leaf(key, subject, subject, _alternative_names(names), now)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def of_pem(cls, pem: bytes) -> OwnCertificate | None:
        """Return what :attr:`pem` was, or None if it is damaged."""
        try:
            key = load_pem_private_key(pem, password=None)
            certificate = x509.load_pem_x509_certificate(pem)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            return None
        if not isinstance(key, TlsKey) or key.public_key() != certificate.public_key():
            return None
        return cls(key, certificate)

    @property
    def pem(self) -> bytes:
        """The private key and the certificate."""
        return _pem_of(self.key, self.certificate)

    def serves(self, names: Iterable[str], now: int) -> bool:
        """Return whether it is for these names, and lasts for a while."""
        there = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        begins_at = times.from_datetime(self.certificate.not_valid_before_utc)
        lasts = begins_at <= now < ends_at(self.certificate) - RENEWED_BEFORE
        return lasts and list(there.value) == _alternative_names(names)


def pem_for_nodes(key: NodeKey, tls_key: TlsKey, now: int) -> bytes:
    """Return a private TLS key with a certificate that a node's key has signed.

    The bridges follow it, so that those who know a former key trust it, too.
    """
    subject, issuer = _name_of("parley node"), _name_of(key.public_text)
    builder = _leaf(tls_key, subject, issuer, [x509.DNSName(SERVER_NAME)], now)
    public = Ed25519PublicKey.from_public_bytes(key.public)
    by_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
    leaf = key.certify(builder.add_extension(by_issuer, critical=False))
    return _pem_of(tls_key, leaf) + key.bridges


@lru_cache(maxsize=1024)
def anchor_of(key: str) -> bytes:
    """Return a certificate (DER) that trusts what a key, in its printable form, has signed.

    :raises ValueError: it is not a key.
    """
    builder = _authority_certificate(key, key)
    return builder.sign(Ed25519PrivateKey.generate(), None).public_bytes(Encoding.DER)


def bridge(former: NodeKey, latter: str) -> bytes:
    """Return a certificate (PEM) by which a key vouches for the one that follows it."""
    return former.certify(_authority_certificate(latter, former.public_text)).public_bytes(
        Encoding.PEM
    )


def _authority_certificate(key: str, issuer: str) -> x509.CertificateBuilder:
    public = Ed25519PublicKey.from_public_bytes(public_of(key))
    by_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(
        Ed25519PublicKey.from_public_bytes(public_of(issuer))
    )
    return (
        x509.CertificateBuilder()
        .subject_name(_name_of(key))
        .issuer_name(_name_of(issuer))
        .public_key(public)
        .serial_number(1 if key == issuer else 2)
        .not_valid_before(_FIRST)
        .not_valid_after(_LAST)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(by_issuer, critical=False)
    )


def ends_at(certificate: x509.Certificate) -> int:
    """Return when a certificate expires."""
    return times.from_datetime(certificate.not_valid_after_utc)


def _pem_of(key: TlsKey, certificate: x509.Certificate) -> bytes:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)


def _leaf(
    key: TlsKey, subject: x509.Name, issuer: x509.Name, names: list[x509.GeneralName], now: int
) -> x509.CertificateBuilder:
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(times.to_datetime(now - _BACKDATED))
        .not_valid_after(times.to_datetime(now - _BACKDATED + LIFE))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name_of(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative_names(names: Iterable[str]) -> list[x509.GeneralName]:
    alternatives: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            if name.isascii():
                alternatives.append(x509.DNSName(name))
    return alternatives
