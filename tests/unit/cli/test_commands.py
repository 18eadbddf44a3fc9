"""The help of commands, servers and tokens, specs of shortcuts, and error sentences."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from node.cli.commands import COMMANDS
from node.cli.failures import error_text
from node.cli.invocation import DEFAULT_SERVER, Invocation
from node.cli.lab.commands import _Loss, wan_of, wan_sentence
from node.cli.lab.wan import WanSettings
from node.cli.main import FOREIGN, option_suggestion, parley, suggestion, wants_json
from node.cli.shortcuts import _FIELDS, spec_of
from node.client.users import UserClient
from node.model.errors import (
    FieldFault,
    InvalidDocument,
    NotAllowed,
    RefusedByParticipant,
)
from node.runtime.clock import SystemClock

OWN = [name for name in COMMANDS if name != "up"]


@pytest.mark.parametrize("name", OWN)
def test_help_page_matches_the_command(name: str) -> None:
    """The line on the help page is the first sentence of the command's own help."""
    context = click.Context(parley)
    command = parley.get_command(context, name)
    assert command is not None
    assert command.get_short_help_str(limit=200) == COMMANDS[name][1]


def _leaves(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        children = [
            (name, command.get_command(context, name)) for name in command.list_commands(context)
        ]
        return [
            leaf for name, child in children if child for leaf in _leaves(child, f"{path} {name}")
        ]
    return [(path, command)]


@pytest.mark.parametrize("name", OWN)
def test_the_help_of_a_group_has_whole_summaries(name: str) -> None:
    """No summary of a command is cut."""
    group = parley.get_command(click.Context(parley), name)
    if isinstance(group, click.Group):
        page = group.get_help(click.Context(group, info_name=name, max_content_width=80))
        _, _, summaries = page.partition("Commands:")
        assert summaries
        assert "..." not in summaries


@pytest.mark.parametrize("name", OWN)
def test_every_option_has_a_help(name: str) -> None:
    """Every command and every option has a help text."""
    command = parley.get_command(click.Context(parley), name)
    assert command is not None
    for path, leaf in _leaves(command, name):
        assert leaf.help, path
        for parameter in leaf.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{path} {parameter.opts}"


@pytest.mark.parametrize(
    ("written", "url"),
    [
        (None, DEFAULT_SERVER),
        ("127.0.0.1:8642", "http://127.0.0.1:8642"),
        ("https://a.example/", "https://a.example"),
        ("http://[::1]:8642", "http://[::1]:8642"),
    ],
)
def test_servers(written: str | None, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is named by scheme, host and port; the scheme may be left out."""
    monkeypatch.delenv("PARLEY_SERVER", raising=False)
    assert Invocation(server=written).server_url() == url


@pytest.mark.parametrize(
    "written", ["ftp://a", "http://", "http://a/v1", "http://u:p@a", "http://a:99999", "http://[::"]
)
def test_invalid_servers(written: str) -> None:
    """Anything that is not an address is refused before a request is sent."""
    with pytest.raises(click.BadParameter, match="address of a node"):
        Invocation(server=written).server_url()


@pytest.mark.parametrize(
    ("server", "sent"),
    [
        ("http://127.0.0.1:1", "own"),
        ("http://127.9.9.9", "own"),
        ("http://[::1]:1", "own"),
        ("http://localhost", "own"),
        ("http://192.0.2.7:8642", None),
        ("http://127.0.0.1.example", None),
    ],
)
def test_stored_token_stays_on_this_host(
    server: str, sent: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token found in a file is sent only to loopback, a given one anywhere."""
    (tmp_path / "token").write_text("own\n")
    monkeypatch.setenv("PARLEY_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("PARLEY_TOKEN", raising=False)
    assert Invocation(server=server).access_token() == sent
    assert Invocation(server=server, token="given").access_token() == "given"
    monkeypatch.setenv("PARLEY_TOKEN", "environment")
    assert Invocation(server=server).access_token() == "environment"


@pytest.mark.needs("root")
def test_stored_token_is_no_link_of_another_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root sends no file as a token to which the account of a node has put a link there."""
    (tmp_path / "secret").write_text("of root\n")
    (tmp_path / "token").symlink_to(tmp_path / "secret")
    monkeypatch.setattr("node.cli.invocation._token_folders", lambda: [tmp_path])
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("PARLEY_TOKEN", raising=False)
    assert Invocation().access_token() == "of root"
    os.chown(tmp_path / "token", 1, 1, follow_symlinks=False)
    assert Invocation().access_token() is None


@pytest.mark.parametrize(
    ("test", "given", "spec"),
    [
        ("rtt", {"dest": "b", "count": 5, "packet_timeout": 2_000_000}, {"timeout": "PT2S"}),
        ("latency", {"source": "a", "dest": "b", "interval": 20_000}, {"interval": "PT0.02S"}),
        ("throughput", {"dest": "b", "omit": 0, "rate_bps": 10**6}, {"omit": "PT0S"}),
        ("dns", {"name": "a.b", "type": "MX", "packet_timeout": 500_000}, {"timeout": "PT0.5S"}),
        ("http", {"url": "http://b/", "verify": False, "headers": {"A": "b"}}, {"verify": False}),
        ("tcp", {"dest": "b", "port": 22, "banner": True}, {"port": 22}),
        ("tls", {"dest": "b", "days_min": 14, "alpn": ["h2"]}, {"alpn": ["h2"]}),
        ("clock", {"dest": "b", "interval": 20_000}, {"interval": "PT0.02S"}),
    ],
)
def test_specs_of_shortcuts(test: str, given: dict[str, Any], spec: dict[str, Any]) -> None:
    """A spec has only the given fields, under the test's names, with durations as ISO 8601."""
    names = (
        "source", "dest", "count", "interval", "length", "ttl", "port", "ip_version", "duration",
        "omit", "protocol", "streams", "rate_bps", "congestion", "reverse", "window_bytes",
        "packet_timeout", "name", "type", "server", "dnssec", "tries", "expected", "rcode", "url",
        "method", "headers", "redirects", "status", "text", "verify", "bytes_max", "banner",
        "server_name", "days_min", "alpn",
    )  # fmt: skip
    spec_fields = spec_of(test, dict.fromkeys(names) | given)
    assert spec_fields.items() >= spec.items()
    assert set(spec_fields) == {"timeout" if name == "packet_timeout" else name for name in given}


@pytest.mark.parametrize(
    ("text", "share"), [("1%", 0.01), ("0.01", 0.01), ("1", 0.01), ("2.5", 0.025), ("0", 0.0)]
)
def test_losses(text: str, share: float) -> None:
    """A percent sign or a number from 1 on means percent; below it is a fraction."""
    assert _Loss().convert(text, None, None) == pytest.approx(share)


@pytest.mark.parametrize("text", ["101%", "-1%", "much", "nan"])
def test_invalid_losses(text: str) -> None:
    """Anything outside 0 % to 100 % is refused."""
    with pytest.raises(click.BadParameter):
        _Loss().convert(text, None, None)


def test_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated network needs namespaces, and namespaces need root."""
    assert wan_of(namespaces=False, delay_ms=None, loss=None) is None
    with pytest.raises(click.UsageError, match="--delay-ms needs --namespaces"):
        wan_of(namespaces=False, delay_ms=20.0)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(NotAllowed, match="root"):
        wan_of(namespaces=True)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    wan = wan_of(namespaces=True, delay_ms=20.0, loss=0.01, rate_mbit=None)
    assert wan == WanSettings(20, 0.01, None)
    assert wan_sentence(wan) == "between the nodes: 20 ms and 1 % loss in each direction"
    assert wan_sentence(WanSettings(0, 0, 50)).endswith(", 50 Mb/s")


def test_sentences() -> None:
    """An error is printed as the cause on one line and the remedy on the next."""
    assert error_text(NotAllowed("no; ask the owner")) == "✗ no\n  ask the owner"
    assert error_text(InvalidDocument([FieldFault("/a", "is wrong")])) == "✗ /a: is wrong"


def test_each_refusal_has_a_line() -> None:
    """Each refusal has its own line, and a remedy stays with its cause."""
    lacks = "iperf3: TCP here has no congestion control bbr; modprobe tcp_bbr may bring it"
    other = "nuttcp: nuttcp cannot choose bbr"
    assert error_text(RefusedByParticipant(f"a: {lacks}; {other}; b: {lacks}; {other}")) == (
        f"✗ A participant refuses the task\n  a: {lacks}\n  {other}\n  b: {lacks}\n  {other}"
    )
    assert error_text(RefusedByParticipant("a: no ping; apt install it")) == (
        "✗ a: no ping\n  apt install it"
    )


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("a.example:8642", "https://a.example:8642"),
        ("127.0.0.1:8642", "http://127.0.0.1:8642"),
        ("[::1]:8642", "http://[::1]:8642"),
        ("localhost:1", "http://localhost:1"),
        ("http://a:1", "http://a:1"),
    ],
)
def test_tls_is_the_default_for_other_hosts(address: str, url: str) -> None:
    """An address without a scheme means https, on this host http."""
    assert Invocation(server=address).server_url() == url


@pytest.mark.parametrize(
    ("server", "given", "meant", "expected"),
    [
        (None, None, "https://a:1", "of a"),
        ("https://a:1/", None, "https://a:1", "of a"),
        ("https://b:1", None, "https://a:1", None),
        ("https://b:1", None, "no address", None),
        ("https://b:1", "given", "https://a:1", "given"),
    ],
)
def test_expected_identities(
    server: str | None,
    given: str | None,
    meant: str,
    expected: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PARLEY_IDENTITY is the key of the node of PARLEY_SERVER, and of no other one."""
    monkeypatch.setenv("PARLEY_SERVER", meant)
    monkeypatch.setenv("PARLEY_IDENTITY", "of a")
    assert Invocation(server=server, server_identity=given).expected_identity == expected


@pytest.mark.parametrize(
    ("server", "plain_http", "refused"),
    [
        ("http://203.0.113.7:8642", False, True),
        ("http://a.example:8642", False, True),
        ("http://203.0.113.7:8642", True, False),
        ("http://127.0.0.1:8642", False, False),
        ("https://203.0.113.7:8642", False, False),
    ],
)
async def test_tokens_stay_secret(server: str, *, plain_http: bool, refused: bool) -> None:
    """A token goes to no other host over plain HTTP, unless that is allowed."""
    client = UserClient(server, "secret", SystemClock(), plain_http=plain_http)
    with pytest.raises(NotAllowed, match="was not sent") if refused else nullcontext():
        async with client:
            pass
    async with UserClient(server, None, SystemClock()):
        pass


@pytest.mark.parametrize(
    ("server", "token", "meant", "borrowed"),
    [
        (None, None, "http://a:1", False),
        ("http://a:1/", None, "http://a:1", False),
        ("http://b:1", None, "http://a:1", True),
        ("http://b:1", None, "", True),
        ("http://b:1", None, "no address", True),
        ("http://b:1", "given", "http://a:1", False),
    ],
)
def test_borrowed_tokens(
    server: str | None,
    token: str | None,
    meant: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    borrowed: bool,
) -> None:
    """A token of the environment is borrowed if it goes to another server than PARLEY_SERVER."""
    monkeypatch.setenv("PARLEY_SERVER", meant)
    monkeypatch.setenv("PARLEY_TOKEN", "environment")
    assert Invocation(server=server, token=token).is_token_borrowed is borrowed


def test_every_shortcut_has_examples() -> None:
    """The help of each shortcut ends with examples that its own parser accepts."""
    context = click.Context(parley)
    for name in _FIELDS:
        command = parley.get_command(context, name)
        assert command is not None
        lines = (command.epilog or "").splitlines()
        assert lines[:2] == ["\b", "Examples:"]
        for line in lines[2:]:
            program, called, *arguments = line.split()
            assert (program, called) == ("parley", name)
            command.make_context(name, arguments, parent=click.Context(parley))


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("rrt", "rtt"), ("tasks", "task"), ("ping", "rtt"), ("Traceroute", "trace"),
        ("result", "run result"), ("runs", "run"),
    ],
)  # fmt: skip
def test_suggestions_at_the_top(word: str, meant: str) -> None:
    """A mistyped command, or that of another program, is answered with the one probably meant."""
    assert f"Did you mean {meant!r}" in suggestion(word)
    assert suggestion("zzzz") == ""
    assert all(known.split()[0] in COMMANDS for known in FOREIGN.values())


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("throughput b --bandwidth 5M", "'--bandwidth'. Did you mean '--rate'?"),
        ("mesh remove x --yes", "'--yes'. It does not ask; leave the option out."),
        ("run list --since -1d", "'--since'. Did you mean '--from'?"),
        ("rtt b --cuont 5", "'--cuont'. Did you mean '--count'"),
        ("rtt b --choice stick", "'stick' is not known; did you mean sticky?"),
    ],
)
def test_suggestions_of_options(line: str, meant: str) -> None:
    """An unknown option or word of one is answered with what was probably meant, and why."""
    ended = CliRunner().invoke(parley, line.split())
    assert (ended.exit_code, meant in ended.output.splitlines()[-1]) == (2, True)
    assert option_suggestion("--zzzz", ["--count"]) == ""


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("-o json rrt", True), ("rtt b -ojsonl", True), ("rtt --output=json", True),
        ("-o json run list -o csv", False), ("run list", False), ("run list -o", False),
        ("rtt -- -o json", False),
    ],
)  # fmt: skip
def test_who_wants_problem_documents(line: str, *, wanted: bool) -> None:
    """The last output format of a command line decides in which form its errors are."""
    assert wants_json(line.split()) is wanted
