"""Archive specs of pScheduler become archives of this node, or are refused with a sentence."""

from __future__ import annotations

import time
from typing import Any

import pytest

from node.pscheduler.archives import to_parley
from node.pscheduler.refusals import Refusal
from node.results.archivers import archivers

LOGSTASH = {
    "archiver": "http",
    "data": {
        "schema": 3,
        "_url": "https://archive.example/logstash",
        "verify-ssl": False,
        "op": "put",
        "_headers": {
            "x-ps-observer": "a.example",
            "content-type": "application/json",
            "none": None,
        },
    },
}


def spec(archiver: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return an archive spec."""
    return {"archiver": archiver, "data": data, **more}


SPECS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "http": (
        LOGSTASH,
        {
            "url": "https://archive.example/logstash",
            "method": "PUT",
            "format": "single",
            "verify": False,
            "headers": {"x-ps-observer": "a.example"},
            "content_type": "application/json",
        },
    ),
    "http-user": (
        spec("http", {"_url": "http://me:pass%20word@h:81/in?q=1", "schema": 4, "timeout": "PT5S"}),
        {
            "url": "http://h:81/in?q=1",
            "method": "POST",
            "headers": {"Authorization": "Basic bWU6cGFzcyB3b3Jk"},
            "timeout": "PT5S",
        },
    ),
    "rabbitmq": (
        spec("rabbitmq", {"_url": "amqps://u:p@mq.example/v%2Fh", "exchange": "ps"}),
        {"host": "mq.example", "port": 5671, "tls": True, "vhost": "v/h", "routing_key": ""},
    ),
    "kafka": (
        spec("kafka", {"topic": "t", "server": "k1:9093, k2"}),
        {"brokers": [{"host": "k1", "port": 9093}, {"host": "k2", "port": 9092}], "tls": False},
    ),
    "postgresql": (
        spec(
            "postgresql",
            {
                "_dsn": "host = db.example dbname=r user=u password='s e' sslmode=verify-ca",
                "table": "kept.results",
                "column": "json",
            },
        ),
        {
            "host": "db.example",
            "database": "r",
            "password": "s e",
            "tls": "verify-full",
            "namespace": "kept",
            "table": "results",
            "column": "json",
            "create": False,
        },
    ),
    "postgresql-uri": (
        spec("postgresql", {"_dsn": "postgresql://u@/r?host=/run/pg", "table": "t", "column": "c"}),
        {"socket": "/run/pg", "database": "r", "user": "u"},
    ),
    "syslog": (
        spec("syslog", {"facility": "cron", "priority": "err"}),
        {"app_name": "pScheduler", "facility": "cron", "severity": "err", "transport": "unix"},
    ),
    "tcp": (
        spec("tcp", {"host": "h", "port": 5170, "ip-version": 6, "bind": "::1"}),
        {"host": "h", "port": 5170, "ip_version": 6, "bind": "::1"},
    ),
    "udp": (spec("udp", {"host": "h", "port": 5170, "payload-size": 1000}), {"port": 5170}),
    "bitbucket": (spec("bitbucket", {"anything": [1]}), {}),
    "failer": (spec("failer", {"fail": 0.0, "retry": 0.0}), {}),
}


@pytest.mark.parametrize("case", SPECS)
def test_spec_of_each_archiver_becomes_one_that_this_node_accepts(case: str) -> None:
    """Each member has its counterpart, and the archiver here accepts the spec."""
    given, expected = SPECS[case]
    choice = to_parley(given).choice
    assert choice.format == "pscheduler"
    assert choice.runs == "succeeded"
    own = archivers()[choice.archiver].spec_model.model_validate(choice.spec)
    accepted = own.model_dump()
    assert {name: accepted[name] for name in expected} == expected


def test_what_an_archive_is_like_is_kept() -> None:
    """Transform with arguments, ttl, runs, label, and the host of links reach the archive."""
    given = spec(
        "bitbucket",
        {},
        schema=3,
        runs="all",
        label="main",
        ttl="P1D",
        transform={"script": [".x", "| $y"], "args": {"y": {"z": 1}}, "output-raw": True},
        **{"uri-host": "a.example:8443"},
    )
    shown = to_parley(given).choice.model_dump(mode="json", exclude_none=True)
    assert shown["transform"] == {"jq": '{"z": 1} as $y | .x\n| $y', "raw": True}
    assert (shown["runs"], shown["ttl"]) == ("all", "P1D")
    assert (shown["note"], shown["uri_host"]) == ("main", "a.example:8443")


def test_differences_that_lose_nothing_are_told() -> None:
    """A policy of retries is replaced by this node's, and that is said."""
    given = spec("tcp", {"host": "h", "port": 1, "retry-policy": [{"attempts": 1, "wait": "PT1M"}]})
    notes = to_parley(given).notes
    assert any("retry-policy" in note for note in notes)


REFUSED = [
    (spec("esmond", {"url": "u"}), 422, 'No archiver "esmond" is available'),
    (spec("http", {}), 400, "'_url' is a required property"),
    (spec("http", {"_url": "ftp://x"}), 400, "_url is not valid"),
    (spec("http", {"_url": "http://x", "op": "patch"}), 400, "op is"),
    (spec("http", {"_url": "http://x", "schema": 5}), 400, "Schema version 5 is not supported"),
    (spec("http", {"_url": "http://x", "other": 1}), 400, "unknown members: other"),
    (spec("http", {"_url": "http://x"}, runs="all"), 400, "unknown members: runs"),
    (spec("http", {"_url": "http://x"}, schema=2, runs="never"), 400, "/runs"),
    (spec("http", {"_url": "http://x"}, schema=9), 400, "Schema version 9"),
    (spec("http", {"_url": "http://x"}, ttl="1D"), 400, "not a valid ISO 8601 duration"),
    (spec("http", {"_url": "http://x"}, transform={"script": 1}), 400, "transform is not valid"),
    (
        spec("kafka", {"topic": "t", "server": "s", "security-protocol": "SASL_SSL"}),
        422,
        "security-protocol SASL_SSL has no counterpart",
    ),
    (spec("kafka", {"topic": "t", "server": "s", "_ssl-keyfile": "k"}), 422, "_ssl-keyfile has"),
    (spec("rabbitmq", {"_url": "amqp://h", "routing-key": {"script": "."}}), 422, "a transform"),
    (
        spec(
            "postgresql", {"_dsn": "dbname=r user=u options=-csearch", "table": "t", "column": "c"}
        ),
        422,
        "a parameter options",
    ),
    (spec("postgresql", {"_dsn": "dbname=r", "table": "t", "column": "c"}), 422, "name the user"),
    (spec("postgresql", {"_dsn": "nonsense", "table": "t", "column": "c"}), 400, "_dsn is not"),
    (spec("tcp", {"host": "h", "port": "x"}), 400, "port is not valid"),
    (spec("failer", {}), 422, "fail is not 0"),
    (spec("failer", {"fail": 0, "badly": True, "schema": 2}), 422, "badly is true"),
    ([], 400, "JSON object"),
    ({"archiver": "http"}, 400, "'data' is a required property"),
]


@pytest.mark.parametrize(("given", "status", "words"), REFUSED)
def test_what_has_no_counterpart_is_refused_in_words(given: Any, status: int, words: str) -> None:
    """A wrong spec is answered 400, and one that nothing here does 422, each with a sentence."""
    with pytest.raises(Refusal) as refused:
        to_parley(given)
    assert words in str(refused.value)
    told = refused.value
    assert getattr(told, "answer_status", getattr(told, "status", None)) == status


def test_a_connection_string_of_blanks_is_read_at_once() -> None:
    """A megabyte of blanks does not hold up the node for minutes."""
    blanks = " " * 500_000
    refused = {"_dsn": f"host{blanks}= db.example dbname=r user=u{blanks}x"}
    began = time.process_time()
    with pytest.raises(Refusal, match="_dsn is not valid"):
        to_parley(spec("postgresql", {**refused, "table": "t", "column": "c"}))
    assert time.process_time() - began < 5
