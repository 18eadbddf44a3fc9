"""Opens one TLS connection; prints times, version, cipher, certificates and whether it is trusted.

``tls_handshake.py '{"host": "192.0.2.7", "port": 443, "server_name": "a.example", …}'``, see
:func:`measure`. Certificates are parsed here and not in the node: they come from a stranger.
"""

from __future__ import annotations

import ipaddress
import ssl
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa

if __name__ == "__main__":  # started by its path and in isolated mode: only libraries can be found
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint, target

if TYPE_CHECKING:
    from node.model.targets import TargetRules

_CERTIFICATES_MAX = 10
_NAMES_MAX = 100


class Handshake:
    """One connection: the measurements so far."""

    def __init__(
        self,
        arguments: stamp_endpoint.Arguments,
        judging: ssl.SSLContext,
        rules: TargetRules | None = None,
    ) -> None:
        """Start the deadline; ``judging`` decides about trust. Nothing is opened yet."""
        self._arguments = arguments
        self._rules = rules
        self._judging = judging
        self._deadline = target.Deadline(arguments["timeout_ns"])
        self.result: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """Return the measurements, and the failure if there was one."""
        try:
            self._measure()
        except target.TargetUnreachable as reason:
            self.result["failure"] = str(reason)
        except OSError as fault:
            self.result["failure"] = f"the connection broke: {target.system_error_text(fault)}"
        return self.result

    def _measure(self) -> None:
        began_ns = time.monotonic_ns()
        arguments = self._arguments
        host, port, version = arguments["host"], arguments["port"], arguments["ip_version"]
        addresses = target.look_up(host, port, version, self._deadline, self._rules)
        self.result["name_ns"] = time.monotonic_ns() - began_ns
        try:
            self._shake(addresses, self._judging)
        except target.Distrusted as reason:
            self.result |= {"verified": False, "distrust": str(reason)}
            # We aborted that handshake before seeing everything: repeat it without verification.
            self._shake(addresses, _context(ssl.CERT_NONE, self._arguments["alpn"]))
        else:
            self.result["verified"] = True

    def _shake(self, addresses: list[target.Address], context: ssl.SSLContext) -> None:
        """Make one handshake.

        :raises target.Distrusted: the certificate is not what the context requires.
        :raises target.TargetUnreachable: there was no handshake.
        """
        began_ns = time.monotonic_ns()
        with target.connect(addresses, self._deadline, self._arguments) as endpoint:
            connected_ns = time.monotonic_ns()
            self.result["address"] = endpoint.getpeername()[0]
            self.result["connect_ns"] = connected_ns - began_ns
            name = self._arguments["server_name"]
            with target.secure(context, endpoint, name, self._deadline) as secured:
                self.result["handshake_ns"] = time.monotonic_ns() - connected_ns
                self.result |= _session(secured)


def _context(judging: ssl.VerifyMode, alpn: list[str]) -> ssl.SSLContext:
    context = target.judging_context(alpn, verify=judging is ssl.CERT_REQUIRED)
    context.hostname_checks_common_name = False  # RFC 9525
    return context


def _session(secured: ssl.SSLSocket) -> dict[str, Any]:
    cipher, _, bits = secured.cipher() or ("", "", 0)
    chain = _chain(secured)[:_CERTIFICATES_MAX]
    return {
        "version": secured.version(),
        "cipher": cipher,
        "cipher_bits": bits,
        "alpn": secured.selected_alpn_protocol(),
        "chain": [_certificate(octets) for octets in chain],
        "ends_s": _ends_s(chain[0]) if chain else None,
    }


def _chain(secured: ssl.SSLSocket) -> list[bytes]:
    """Return the certificates as the server sent them, its own first, in DER."""
    if sys.version_info >= (3, 13):
        return list(secured.get_unverified_chain() or [])
    # Before Python 3.13 only the private object gives access to more than the first.
    below: Any = secured._sslobj  # type: ignore[attr-defined]  # noqa: SLF001
    chain = below.get_unverified_chain() or []
    return [ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in chain]


def _certificate(octets: bytes) -> dict[str, Any]:
    """Return the contents of a certificate; fields that cannot be parsed are left out."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(octets)
    fields: dict[str, Any] = {"sha256": digest.finalize().hex()}
    try:
        certificate = x509.load_der_x509_certificate(octets)
    except ValueError:
        return fields
    readers: dict[str, Callable[[x509.Certificate], object]] = {
        "subject": lambda it: it.subject.rfc4514_string(),
        "issuer": lambda it: it.issuer.rfc4514_string(),
        "names": _names,
        "not_before": lambda it: _instant(it.not_valid_before_utc),
        "not_after": lambda it: _instant(it.not_valid_after_utc),
        "serial": lambda it: f"{it.serial_number:x}",
        "key": lambda it: _key(it.public_key()),
    }
    for field, read in readers.items():
        try:
            fields[field] = read(certificate)
        except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
            continue
        except Exception as fault:  # noqa: BLE001 - the library raises many kinds for bad bytes
            print(f"{field}: {fault!r}", file=sys.stderr)
    return fields


def _ends_s(octets: bytes) -> int | None:
    """Return the end of a certificate's validity, in seconds since 1970."""
    try:
        return int(x509.load_der_x509_certificate(octets).not_valid_after_utc.timestamp())
    except ValueError:
        return None


def _instant(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _names(certificate: x509.Certificate) -> list[str]:
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    names = [str(each) for each in extension.get_values_for_type(x509.DNSName)]
    names += [str(each) for each in extension.get_values_for_type(x509.IPAddress)]
    return names[:_NAMES_MAX]


def _key(key: object) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"EC {key.curve.name}"
    if isinstance(key, dsa.DSAPublicKey):
        return f"DSA {key.key_size}"
    return type(key).__name__.strip("_").removesuffix("PublicKey")


def names_match(server_name: str, names: list[str]) -> bool:
    """Return whether one of a certificate's names is the server's (RFC 6125 6.4, RFC 9525).

    A ``*`` matches one whole label, the first; an address must be among the addresses.
    """
    try:
        address = str(ipaddress.ip_address(server_name))
    except ValueError:
        host = server_name.rstrip(".").lower()
        wildcard = "*." + host.partition(".")[2]
        return any(name.lower() in {host, wildcard} for name in names)
    return address in names


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Make one handshake, and a second one without verification if the first is not trusted.

    Arguments: ``host``, ``port``, ``ip_version`` (4, 6 or null), ``device``, ``source`` (the
    address to connect from, or null), ``server_name``, ``alpn`` (names of protocols),
    ``timeout_ns`` (for everything), ``first_ns`` (the instant to begin), ``private`` (see
    :class:`.target.Private`).
    Result: nanoseconds for the name, the connection and the handshake; version, cipher, protocol;
    whether the system's trust store trusts the certificate, and why not; the chain, the first one's
    end in seconds since 1970; and ``failure`` if the result is incomplete.
    """
    judging = _context(ssl.CERT_REQUIRED, arguments["alpn"])  # reads the trust store, in advance
    rules = target.Private(arguments).rules
    stamp_endpoint.wait_until(arguments["first_ns"])
    result = Handshake(arguments, judging, rules).run()
    if "chain" in result:
        own = result["chain"][0] if result["chain"] else {}
        matches = names_match(arguments["server_name"], own.get("names", []))
        result["name_matches"] = result["verified"] or matches
    return result


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure))
