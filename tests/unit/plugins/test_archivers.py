"""Specs of archivers, what they write, and how they treat answers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from node.model import times
from node.model.errors import InvalidDocument
from node.model.wire.archives import ArchiveChoice
from node.plugins.archivers import file, syslog
from node.plugins.archivers.http import signature
from node.plugins.contracts import ArchivingHost, DeliveryItem, DeliveryOutcome, DeliveryStatus
from node.plugins.transport.batches import deliver_by_bisection, in_order
from node.plugins.transport.posting import retry_after
from node.results.archivers import archivers, missing_requirement
from node.results.archives import Archives
from node.runtime.extras import install_command
from tests.support.clocks import START, ManualClock

HTTP = {"url": "https://collector.example/in"}


@pytest.mark.parametrize(
    ("name", "spec", "field"),
    [
        ("http", {}, "url"),
        ("http", {"url": "ftp://a/b"}, "url"),
        ("http", {"url": "http:///in"}, "url"),
        ("http", {"url": "http://u:p@a/in"}, "url"),
        ("http", {"url": "http://a/in#x"}, "url"),
        ("http", {"url": "http://a/i n"}, "url"),
        ("http", {"url": "http://a:99999/"}, "url"),
        ("http", {"url": "-oX"}, "url"),
        ("http", {**HTTP, "secret": "short"}, "secret"),
        ("http", {**HTTP, "headers": {"Host": "b"}}, "headers"),
        ("http", {**HTTP, "headers": {"a": "x\r\nb: y"}}, "headers"),
        ("http", {**HTTP, "headers": {"a b": "x"}}, "headers"),
        ("http", {**HTTP, "timeout": "PT10M"}, "timeout"),
        ("http", {**HTTP, "verify": "no"}, "verify"),
        ("http", {**HTTP, "content_type": "a\nb: c"}, "content_type"),
        ("http", {**HTTP, "bind": "-oX"}, "bind"),
        ("file", {"path": "results"}, "path"),
        ("file", {"path": "/a/../etc/passwd"}, "path"),
        ("file", {"path": "/a/"}, "path"),
        ("file", {"path": "/a/b", "rotate_after": "PT1S"}, "rotate_after"),
        ("syslog", {"app_name": "a b"}, "app_name"),
        ("syslog", {"path": "log"}, "path"),
        ("syslog", {"facility": "kern"}, "facility"),
        ("kafka", {"brokers": []}, "brokers"),
        ("kafka", {"brokers": [{"host": "a"}], "topic": "a b"}, "topic"),
        ("otlp", {**HTTP, "headers": {"Content-Encoding": "br"}}, "headers"),
        ("postgresql", {"database": "d", "user": "u", "host": "-oX"}, "host"),
        ("postgresql", {"database": "d", "user": "u", "socket": "/a/../b"}, "socket"),
        ("postgresql", {"database": "d", "user": "u", "namespace": 'p"; DROP'}, "namespace"),
        ("postgresql", {"database": "d"}, "user"),
        ("postgresql", {"database": "d", "user": "u", "table": "a\nb", "column": "c"}, "table"),
        ("prometheus", {**HTTP, "labels": {"a-b": "c"}}, "labels"),
        ("prometheus", {**HTTP, "labels": {"__name__": "c"}}, "labels"),
        ("rabbitmq", {"host": "$(id)"}, "host"),
        ("rabbitmq", {"host": "a", "routing_key": ""}, "routing_key"),
        ("s3", {"bucket": "../x"}, "bucket"),
        ("s3", {"bucket": "results", "prefix": "/a"}, "prefix"),
        ("tcp", {"host": "-oX", "port": 1}, "host"),
        ("tcp", {"host": "$(id)", "port": 1}, "host"),
        ("udp", {"host": "a", "port": 0}, "port"),
    ],
)
def test_a_wrong_spec_is_refused_by_its_field(name: str, spec: dict[str, Any], field: str) -> None:
    """A spec that cannot work is refused, with the field that is wrong."""
    with pytest.raises(ValidationError) as refused:
        archivers()[name].spec_model.model_validate(spec)
    assert {error["loc"][0] for error in refused.value.errors()} == {field}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 0),
        ("120", 120),
        (" 5 ", 5),
        ("Tue, 01 Dec 2026 00:01:00 GMT", 60),
        ("Mon, 30 Nov 2026 00:00:00 GMT", 0),
        ("soon", 0),
        ("-5", 0),
        ("9" * 400, 999_999),
        ("²", 0),
        ("", 0),
    ],
)
def test_retry_after_is_read(text: str | None, seconds: int) -> None:
    """Seconds and dates are pauses; any other text is no pause."""
    assert retry_after(text, START) == seconds * times.SECOND


def test_the_signature_is_what_the_readme_says() -> None:
    """The signature matches a worked example: printf '1.[]' | openssl dgst -sha256 -hmac KEY."""
    assert signature("0123456789abcdef", b"[]", 1) == (
        "t=1,v1=01da57231b3932de403a021ecbee229ca0b84d6d4cdd8ee880d8fb8fb8fe7950"
    )


def one(number: int, size: int = 0, *, succeeded: bool = True) -> DeliveryItem:
    """Return a document to deliver."""
    body = json.dumps({"number": number, "pad": "x" * size}).encode()
    return DeliveryItem(f"k{number}", "s", START, succeeded, body)


@pytest.mark.parametrize(("succeeded", "priority"), [(True, 134), (False, 132)])
def test_a_syslog_message_is_one_of_rfc_5424(succeeded: bool, priority: int) -> None:  # noqa: FBT001 - a case
    """A message has priority, version, time, host, program, nil process and data, then the JSON."""
    spec = syslog.SyslogSpec()
    destination = syslog.SyslogDestination(
        spec, ArchivingHost("a b.example", (), lambda: START), "there"
    )
    message = destination.message(one(1, succeeded=succeeded))
    head = f"<{priority}>1 2026-12-01T00:00:00Z a-b.example parley - result - "
    assert message == head.encode() + b'{"number": 1, "pad": ""}'


async def test_long_syslog_messages_are_parked(tmp_path: Path) -> None:
    """A message that is too long is refused for good, with advice."""
    spec = syslog.SyslogSpec(path=str(tmp_path / "none"), size_max=480)
    destination = syslog.ARCHIVER.open(spec, ArchivingHost("a", (), lambda: START))
    long, short = await destination.deliver([one(1, 1000), one(2)])
    assert (long.status, short.status) == (DeliveryStatus.REFUSED, DeliveryStatus.AGAIN)
    assert "transform" in (long.reason or "")


@pytest.mark.parametrize(
    ("name", "spec", "field"),
    [
        ("postgresql", {"database": "d", "user": "u", "socket": "/run/elsewhere"}, "socket"),
        ("s3", {"bucket": "results", "access_key": "a"}, "secret_key"),
    ],
)
def test_specs_beyond_the_owners_limits_are_refused(
    name: str, spec: dict[str, Any], field: str
) -> None:
    """A socket that implies a login, and half a key, are refused."""
    archiver = archivers()[name]
    host = ArchivingHost("a", (Path("/run/parley"),), lambda: START)
    refused = archiver.refusal(archiver.spec_model.model_validate(spec), host)
    assert refused is not None
    assert refused[0] == field


@pytest.mark.parametrize("name", ["kafka", "otlp", "prometheus", "rabbitmq", "s3"])
def test_a_client_that_is_not_installed_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing client is reported with its extra; archivers without an extra need none."""
    assert missing_requirement(archivers()[name]) is None
    monkeypatch.setattr("node.results.archivers.find_spec", lambda _: None)
    reason = missing_requirement(archivers()[name])
    assert reason is not None
    assert install_command(name) in reason
    assert missing_requirement(archivers()["file"]) is None


async def test_an_archive_without_its_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing client is reported when the archive is created, with what to install."""
    monkeypatch.setattr("node.results.archivers.find_spec", lambda _: None)
    host = ArchivingHost("a", (), lambda: START)
    unused: Any = None
    archives = Archives(unused, ManualClock(), host, unused, unused, unused)
    choice = ArchiveChoice(archiver="rabbitmq", spec={"host": "b.example"})
    with pytest.raises(InvalidDocument) as refused:
        await archives.checked_choice(choice, "/archives/0")
    [fault] = refused.value.faults
    assert fault.pointer == "/archives/0/archiver"
    assert install_command("rabbitmq") in fault.detail


def test_later_results_wait_for_earlier_ones() -> None:
    """A result waits behind an earlier one of its series, and only of its series."""
    again, accepted = (
        DeliveryOutcome(DeliveryStatus.AGAIN, "x"),
        DeliveryOutcome(DeliveryStatus.ACCEPTED),
    )
    refused = DeliveryOutcome(DeliveryStatus.REFUSED, "y")
    batch = [replace(one(number), series=series) for number, series in enumerate("abaa")]
    outcomes = in_order(batch, [again, accepted, accepted, refused])
    assert [each.status for each in outcomes] == [
        DeliveryStatus.AGAIN,
        DeliveryStatus.ACCEPTED,
        DeliveryStatus.AGAIN,
        DeliveryStatus.REFUSED,
    ]


@pytest.mark.parametrize(
    ("held", "fates"),
    [
        (None, ["accepted", "accepted", "refused", "accepted", "again", "accepted", "accepted"]),
        (
            DeliveryOutcome(DeliveryStatus.AGAIN, "behind"),
            ["accepted", "accepted", "refused", "accepted", "again", "again", "again"],
        ),
    ],
)
async def test_the_rejected_item_is_found_by_bisection(
    held: DeliveryOutcome | None, fates: list[str]
) -> None:
    """Bisection delivers all other items in order; behind a waiting one nothing is sent."""
    taken: list[int] = []

    async def send(batch: Sequence[int]) -> tuple[DeliveryOutcome, bool]:
        bad = [number for number in batch if number in {2, 4}]
        if bad:
            return DeliveryOutcome(
                DeliveryStatus.AGAIN if bad == [4] else DeliveryStatus.REFUSED
            ), True
        taken.extend(batch)
        return DeliveryOutcome(DeliveryStatus.ACCEPTED), False

    outcomes = await deliver_by_bisection(range(7), send, held)
    assert [one.status for one in outcomes] == fates
    assert taken == [number for number in range(7) if fates[number] == "accepted"]


class Folder:
    """A file archiver on a folder, and a clock."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        """Configure the archiver; the file does not exist yet."""
        self.path = folder / "results.jsonl"
        self.clock = ManualClock()
        host = ArchivingHost("a", (folder,), self.clock.now)
        file_spec = file.FileSpec.model_validate({"path": str(self.path), **spec})
        self._destination = file.ARCHIVER.open(file_spec, host)

    async def write(self, *documents: DeliveryItem) -> list[DeliveryOutcome]:
        """Deliver documents."""
        return list(await self._destination.deliver(documents))

    def files(self) -> list[str]:
        """Return the names in the folder, without the instants in them."""
        return sorted(path.name for path in self.path.parent.iterdir())


async def test_a_full_file_is_set_aside(tmp_path: Path) -> None:
    """A file is rotated before it exceeds its size; the oldest of the rotated files are deleted."""
    folder = Folder(tmp_path, rotate_bytes=1000, keep=2)
    for number in range(8):
        await folder.write(one(number, 400))
        folder.clock.advance(times.SECOND)
    kept = [
        json.loads(line)["number"] for name in folder.files() for line in _lines(tmp_path, name)
    ]
    assert folder.files()[0] == "results.jsonl"
    assert folder.files()[1:] == [
        "results.jsonl.20261201T000004.000000Z",
        "results.jsonl.20261201T000006.000000Z",
    ]
    assert sorted(kept) == [2, 3, 4, 5, 6, 7]


def _lines(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text().splitlines()


async def test_a_new_period_begins_a_new_file(tmp_path: Path) -> None:
    """The first result after midnight (UTC) starts a new file."""
    folder = Folder(tmp_path)
    await folder.write(one(1))
    folder.clock.advance(times.DAY - 1)
    await folder.write(one(2))
    assert len(folder.files()) == 1
    folder.clock.advance(1)
    await folder.write(one(3))
    assert len(folder.files()) == 2
    assert len(_lines(tmp_path, "results.jsonl")) == 1


async def test_half_a_line_is_ended(tmp_path: Path) -> None:
    """A line that a crash left incomplete does not spoil the next one."""
    folder = Folder(tmp_path)
    folder.path.write_bytes(b'{"number": 0, "pa')
    os.utime(folder.path, (START / times.SECOND, START / times.SECOND))
    await folder.write(one(1))
    assert [json.loads(line)["number"] for line in _lines(tmp_path, "results.jsonl")[1:]] == [1]


async def test_a_batch_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full, a partly written batch is removed again."""
    folder = Folder(tmp_path)
    await folder.write(one(1))
    before = folder.path.read_bytes()

    def full(descriptor: int, lines: bytes) -> None:
        os.write(descriptor, lines[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file, "_write_all", full)
    [outcome] = await folder.write(one(2))
    assert (outcome.status, "No space left" in (outcome.reason or "")) == (
        DeliveryStatus.AGAIN,
        True,
    )
    assert folder.path.read_bytes() == before


async def test_files_are_written_only_where_the_owner_says(tmp_path: Path) -> None:
    """Neither a path outside the allowed directories nor a link to one is written to."""
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    other.mkdir()
    (allowed / "way").symlink_to(other)
    (allowed / "link").symlink_to(other / "target")
    host = ArchivingHost("a", (allowed,), lambda: START)
    for path in (other / "x", allowed / "way" / "x", tmp_path / "allowedx"):
        spec = file.FileSpec(path=str(path))
        refused = file.ARCHIVER.refusal(spec, host)
        assert refused is not None
        assert "PARLEY_ARCHIVE_DIRECTORIES" in refused[1]
        assert (await file.ARCHIVER.open(spec, host).deliver([one(1)]))[
            0
        ].status is DeliveryStatus.REFUSED
    linked = file.ARCHIVER.open(file.FileSpec(path=str(allowed / "link")), host)
    await linked.deliver([one(1)])
    assert list(other.iterdir()) == []
