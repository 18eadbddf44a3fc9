"""The specs of tcp and tls, the commands of their tools, and the parsing of their output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from node.model.errors import ToolOutputError
from node.model.times import DAY, SECOND, format_instant
from node.plugins.contracts import Part
from node.plugins.tests.tcp import TEST as TCP
from node.plugins.tests.tls import TEST as TLS
from node.plugins.tools.connect import TOOL as CONNECT
from node.plugins.tools.handshake import TOOL as HANDSHAKE
from tests.unit.plugins.parts import STARTS, context, printed, spec

MS = 1_000_000
CONNECTED = {
    "address": "192.0.2.2",
    "name_ns": MS,
    "connected": [[0, 20 * MS], [2, 22 * MS]],
    "failures": [["no answer within 3 s", 1]],
    "banner": None,
    "banner_ns": None,
}
CERTIFICATE = {
    "subject": "CN=b.example",
    "issuer": "CN=the authority",
    "names": ["b.example"],
    "not_before": format_instant(STARTS - 60 * DAY),
    "not_after": format_instant(STARTS + 30 * DAY),
    "serial": "1f",
    "key": "RSA 2048",
    "sha256": "00" * 32,
}
SHAKEN = {
    "address": "192.0.2.2",
    "name_ns": MS,
    "connect_ns": 20 * MS,
    "handshake_ns": 41 * MS,
    "version": "TLSv1.3",
    "cipher": "TLS_AES_256_GCM_SHA384",
    "cipher_bits": 256,
    "alpn": None,
    "verified": True,
    "name_matches": True,
    "chain": [CERTIFICATE],
    "ends_s": (STARTS + 30 * DAY) // SECOND,
}
NO_CONNECTION = {"connected": [], "failures": [["Connection refused", 3]]}


@pytest.mark.parametrize("test", [TCP, TLS], ids=lambda test: str(test.name))
@pytest.mark.parametrize(
    "wrong",
    [
        {"dest": "-oX"},
        {"dest": "$(id)"},
        {"dest": "\uff42.example"},
        {"dest": "b.example "},
        {"port": 0},
        {"port": 65_536},
        {"port": "22"},
        {"timeout": "PT2M"},
        {"count": 1001},
        {"alpn": ["h2\r\n"]},
        {"alpn": ["-x"]},
        {"days_min": -1},
        {"server_name": "a/b"},
        {"source": "-x"},
    ],
)
def test_specs_outside_the_limits_are_refused(test: Any, wrong: dict[str, Any]) -> None:
    """Values that are not hosts or ports, or are outside the limits, are refused."""
    with pytest.raises(ValidationError):
        test.spec_model.model_validate({"dest": "b.example", "port": 22} | wrong)


def test_the_arguments_of_the_programs() -> None:
    """The programs get nodes' addresses, names as in certificates, and the instant to begin."""
    params = json.loads(CONNECT.command(context("tcp")).argv[-1])
    assert (params["host"], params["port"], params["count"]) == ("192.0.2.2", 22, 3)
    params = json.loads(HANDSHAKE.command(context("tls")).argv[-1])
    assert (params["host"], params["server_name"], params["port"]) == (
        "192.0.2.2",
        "b.example",
        443,
    )
    assert params["first_ns"] == STARTS * 1000
    named = context("tls", server_name="c.example", alpn=["h2"])
    params = json.loads(HANDSHAKE.command(named).argv[-1])
    assert (params["server_name"], params["alpn"]) == ("c.example", ["h2"])


def test_the_booked_time() -> None:
    """The booked time covers every wait: name, attempts, banner; for TLS, its timeout."""
    assert CONNECT.duration(spec("tcp")) == 8 * SECOND
    assert CONNECT.duration(spec("tcp", banner=True, count=1)) == 10 * SECOND
    assert HANDSHAKE.duration(spec("tls", timeout="PT2S")) == 3 * SECOND


def test_connections() -> None:
    """A result has the times of the connections, the share of failures, and their reasons."""
    part = context("tcp")
    merged = TCP.merge(part.spec, [Part(0, "a", CONNECT.read(part, printed(CONNECTED)))])
    assert merged.reason is None
    result = merged.result or {}
    assert result["connect_ms"]["median"] == 21
    assert TCP.summary(result) == "21.00 ms, 2 of 3 connected (no answer within 3 s)"
    series = {it.name: it.value for it in TCP.metrics(result)}
    assert next(iter(series)) == "connect_median_ms"
    assert series["loss"] == pytest.approx(1 / 3, abs=1e-6)


@pytest.mark.parametrize(
    ("fields", "told", "reason"),
    [
        (
            {},
            CONNECTED | NO_CONNECTION,
            "no connection to 192.0.2.2 port 22: Connection refused (3 attempts)",
        ),
        ({}, {"failure": "b.example: unknown"}, "b.example: unknown"),
        (
            {"banner": True},
            CONNECTED,
            "192.0.2.2 port 22 accepted the connection and sent nothing",
        ),
        ({"banner": True}, CONNECTED | {"banner": "SSH-2.0", "banner_ns": MS}, None),
    ],
)
def test_reasons_of_tcp(fields: dict[str, Any], told: dict[str, Any], reason: str | None) -> None:
    """A deviation from the spec is the run's reason, and the result is kept."""
    part = context("tcp", **fields)
    merged = TCP.merge(part.spec, [Part(0, "a", CONNECT.read(part, printed(told)))])
    assert merged.reason == reason
    assert TCP.summary(merged.result or {})


def test_a_handshake() -> None:
    """A handshake has times, the days left, a summary, and series with the handshake first."""
    part = context("tls")
    merged = TLS.merge(part.spec, [Part(0, "a", HANDSHAKE.read(part, printed(SHAKEN)))])
    assert merged.reason is None
    result = merged.result or {}
    assert result["days_left"] == 30
    assert result["phases_ms"] == {"name": 1, "connect": 20, "handshake": 41}
    assert TLS.summary(result) == "TLSv1.3 in 41.00 ms, 30 days left"
    assert [(it.name, it.value) for it in TLS.metrics(result)][:2] == [
        ("handshake_ms", 41),
        ("days_left", 30),
    ]


ENDED = CERTIFICATE | {"not_after": "2027-01-01T00:00:00Z"}
DISTRUST = {"verified": False, "distrust": "self-signed certificate"}


@pytest.mark.parametrize(
    ("fields", "told", "reason"),
    [
        ({}, DISTRUST, "the certificate is not trusted: self-signed certificate"),
        (
            {},
            DISTRUST | {"chain": [ENDED], "ends_s": 1_798_761_600},
            (
                "the certificate is not trusted: self-signed certificate"
                " (it expired 2027-01-01T00:00:00Z)"
            ),
        ),
        ({"verify": False}, DISTRUST, None),
        ({"days_min": 31}, {}, "the certificate has 30.0 days left, fewer than 31"),
        ({"days_min": 30}, {}, None),
        (
            {"days_min": 1},
            {"chain": [{"sha256": "00"}], "ends_s": None},
            "the certificate's expiry is unknown; 1 days are required",
        ),
        ({}, {"handshake_ns": None, "verified": None, "failure": "no TLS"}, "no TLS"),
        (
            {},
            DISTRUST | {"handshake_ns": None, "chain": [], "failure": "closed"},
            "the certificate is not trusted: self-signed certificate; closed",
        ),
    ],
)
def test_reasons_of_tls(fields: dict[str, Any], told: dict[str, Any], reason: str | None) -> None:
    """A bad certificate is the run's reason, and the chain is kept."""
    part = context("tls", **fields)
    merged = TLS.merge(part.spec, [Part(0, "a", HANDSHAKE.read(part, printed(SHAKEN | told)))])
    assert merged.reason == reason
    assert TLS.summary(merged.result or {})


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("tcp", CONNECTED | {"failures": []}),
        ("tcp", CONNECTED | {"connected": [[0, -1]] * 2}),
        ("tcp", CONNECTED | {"failure": "and more"}),
        ("tcp", CONNECTED | {"name_ns": float("nan")}),
        ("tls", SHAKEN | {"handshake_ns": None}),
        ("tls", SHAKEN | {"chain": [CERTIFICATE | {"names": "b.example"}]}),
        ("tls", SHAKEN | {"ends_s": 10**13}),
        ("tls", SHAKEN | {"chain": [CERTIFICATE] * 11}),
        ("tls", SHAKEN | {"connect_ns": -1}),
    ],
)
def test_impossible_output_is_refused(test: str, told: dict[str, Any]) -> None:
    """Impossible output of a program is refused."""
    tool = CONNECT if test == "tcp" else HANDSHAKE
    with pytest.raises(ToolOutputError):
        tool.read(context(test), printed(told))
