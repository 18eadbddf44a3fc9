"""The right to name an archive: by role, by the words of the owner, and in whose name it speaks."""

from __future__ import annotations

from typing import Any

import pytest

from node.model.errors import NotAllowed
from node.model.named_archives import (
    comparable_word,
    fault_of_word,
    require_archives,
    require_own_voice,
    visible_error,
)
from node.model.principals import Principal, PrincipalKind, Role
from node.model.wire.archives import ArchiveChoice
from node.pscheduler.archives import to_parley

CLIENT = Principal(PrincipalKind.TOKEN, "pscheduler:192.0.2.7", Role.RUN)
GUEST, OPERATOR, OWNER = (
    Principal(PrincipalKind.TOKEN, "alice", role) for role in (Role.RUN, Role.OPERATE, Role.OWN)
)


def _http(url: str) -> dict[str, Any]:
    return {"archiver": "http", "data": {"_url": url}}


def _socket(archiver: str, host: str, port: int) -> dict[str, Any]:
    return {"archiver": archiver, "data": {"host": host, "port": port}}


def _kafka(server: str) -> dict[str, Any]:
    return {"archiver": "kafka", "data": {"server": server, "topic": "t"}}


def _postgresql(host: str) -> dict[str, Any]:
    data = {"_dsn": f"{host} dbname=d user=u", "table": "t", "column": "c"}
    return {"archiver": "postgresql", "data": data}


_AMQP = {"archiver": "rabbitmq", "data": {"_url": "amqps://r.example/v", "exchange": "e"}}
NAMED: list[tuple[str, dict[str, Any]]] = [
    ("https://logs.example/in", _http("https://u:p@logs.example/in")),
    ("https://Logs.Example/In", _http("https://logs.EXAMPLE/In")),
    ("tcp://192.0.2.9:5140", _socket("tcp", "192.0.2.9", 5140)),
    ("udp://[2001:db8::9]:5", _socket("udp", "2001:db8::9", 5)),
    ("kafka://k.example:9092", _kafka("k.example")),
    ("amqps://r.example:5671", _AMQP),
    ("postgresql://db.example:5432", _postgresql("host=db.example")),
    ("syslog", {"archiver": "syslog", "data": {}}),
]
"""A word of the owner, and an archive of pScheduler that it names."""
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("https://logs.example/in", _http("https://logs.example/in/../admin")),
    ("https://logs.example/in", _http("https://logs.example/in?delete=1")),
    ("https://logs.example/in", _http("http://logs.example/in")),
    ("https://logs.example/in", _http("https://logs.example@169.254.169.254/in")),
    ("tcp://192.0.2.9:5140", _socket("tcp", "192.0.2.9", 6379)),
    ("tcp://192.0.2.9:5140", _socket("udp", "192.0.2.9", 5140)),
    ("kafka://k.example:9092", _kafka("k.example,127.0.0.1:6379")),
    ("postgresql://127.0.0.1:5432", _postgresql("host=/run/postgresql")),
    ("postgresql://127.0.0.1:5432", _postgresql("")),
]
"""A word of the owner, and an archive beside what it names."""


def _choice(spec: dict[str, Any]) -> ArchiveChoice:
    return to_parley(spec).choice


@pytest.mark.parametrize(("word", "spec"), NAMED)
def test_a_client_names_what_the_owner_has_named(word: str, spec: dict[str, Any]) -> None:
    """A client of the façade names the archives of the owner's words, and no user with a token."""
    assert fault_of_word(word) is None
    named = {comparable_word(word)}
    require_archives(CLIENT, [_choice(spec)], named)
    for principal, words in ((CLIENT, set[str]()), (GUEST, named)):
        with pytest.raises(NotAllowed):
            require_archives(principal, [_choice(spec)], words)
    require_archives(OPERATOR, [_choice(spec)], ())


@pytest.mark.parametrize(("word", "spec"), OTHERS)
def test_a_word_means_one_archive(word: str, spec: dict[str, Any]) -> None:
    """An archive beside the one that a word names is refused, and the client is told by what."""
    with pytest.raises(NotAllowed, match="PARLEY_PSCHEDULER_ARCHIVES"):
        require_archives(CLIENT, [_choice(spec)], {comparable_word(word)})


def test_what_is_dropped_needs_no_word() -> None:
    """A client may name the archiver that drops results, as troubleshooting does."""
    require_archives(CLIENT, [_choice({"archiver": "bitbucket", "data": {}})], ())


def test_the_log_of_others_is_the_owners() -> None:
    """A line of another program, or to its facility, is written for the owner only."""
    for data in (
        {"ident": "sshd"},
        {"facility": "auth"},
        {"facility": "cron"},
        {"ident": "parleyx"},
    ):
        choice = _choice({"archiver": "syslog", "data": data})
        for principal in (CLIENT, OPERATOR):
            with pytest.raises(NotAllowed, match="only the owner"):
                require_archives(principal, [choice], {"syslog"})
        require_archives(OWNER, [choice], ())
    for ident in ("pScheduler", "parley-east"):
        require_own_voice(OPERATOR, "syslog", {"facility": "local7", "app_name": ident})


@pytest.mark.parametrize(
    "word",
    [
        "http://[::1",
        "tcp://192.0.2.9",
        "ftp://a.example/",
        "https://u@a.example/",
        "logs",
        "tcp://a:1/x",
    ],
)
def test_words_that_name_nothing_have_faults(word: str) -> None:
    """A word that is no whole URL of an archive is a fault of the setting."""
    assert fault_of_word(word)


def test_an_answer_is_told_to_who_could_have_asked() -> None:
    """Users below operate are told the status of an archive's answer, and nothing of the answer."""
    said = "403 Forbidden AccessKeyId ASIA"
    assert visible_error(OPERATOR, said) == visible_error(OWNER, said) == said
    for principal in (GUEST, CLIENT, None):
        told = visible_error(principal, said) or ""
        assert told.startswith("it answered 403")
        assert "ASIA" not in told
        assert "refused" not in (visible_error(principal, "a.example port 6379: refused") or "")
        assert visible_error(principal, None) is None
