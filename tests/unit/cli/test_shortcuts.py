"""The specs and schedules that the options of shortcuts become."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from node.cli import shortcuts
from node.cli.shortcuts import continuous_options, spec_of
from node.model.times import HOUR, MINUTE, SECOND

NOTHING: dict[str, Any] = dict.fromkeys(
    (
        *("source", "dest", "duration", "each", "interval", "length", "port", "ip_version"),
        *("host", "interface", "packet_timeout", "repeat", "cron"),
    )
)


def test_durations_are_written_as_the_api_reads_them() -> None:
    """A spec has only the given options, with durations as ISO 8601."""
    given = NOTHING | {"dest": "b", "each": 30 * SECOND, "packet_timeout": 2 * SECOND}
    wanted = {"dest": "b", "each": "PT30S", "timeout": "PT2S"}
    assert spec_of("latencybg", given) == wanted
    given = NOTHING | {"host": "b", "interface": "eth0", "duration": 10 * MINUTE}
    wanted = {"host": "b", "interface": "eth0", "duration": "PT10M"}
    assert spec_of("interface", given) == wanted


def test_continuous_is_as_often_as_a_run_lasts() -> None:
    """The next run begins where one ends, and a run lasts an hour by default."""
    assert continuous_options(NOTHING | {"continuous": False})["repeat"] is None
    assert continuous_options(NOTHING | {"continuous": True})["repeat"] == HOUR
    lasting = NOTHING | {"continuous": True, "duration": 10 * MINUTE}
    assert continuous_options(lasting)["repeat"] == 10 * MINUTE


@pytest.mark.parametrize("other", [{"repeat": HOUR}, {"cron": "0 * * * *"}])
def test_continuous_repeats_by_itself(other: dict[str, Any]) -> None:
    """Another repetition besides --continuous is refused."""
    with pytest.raises(click.UsageError, match="repeats by itself"):
        continuous_options(NOTHING | {"continuous": True} | other)


@pytest.mark.parametrize(
    ("command", "options", "text"),
    [
        (shortcuts.trace, ["b", "--icmp", "--tcp"], "--icmp and --tcp exclude each other"),
        (shortcuts.rtt, ["-4", "b", "-6"], "-4 and -6 exclude each other"),
        (shortcuts.tcp, ["b", "ssh"], "'ssh' is not a port; write a number, 1 to 65535"),
        (shortcuts.latency, ["b", "--port", "80"], "'80' is not a port; write a number, 1024 to"),
        (
            shortcuts.throughput,
            ["b", "--congestion", "cubic", "--udp"],
            "UDP has no congestion control; remove --congestion or --udp",
        ),
    ],
)
def test_invalid_options_are_refused(command: click.Command, options: list[str], text: str) -> None:
    """Options that contradict each other are refused, and so is a port that is not a number."""
    result = CliRunner().invoke(command, [*options, "--server", "http://127.0.0.1:1"])
    assert (result.exit_code, text in result.output) == (2, True)


def test_an_option_twice_is_no_contradiction() -> None:
    """An option that is given twice takes the last value."""
    context = shortcuts.trace.make_context("trace", ["b", "--tcp", "--tcp", "--hops", "2"])
    assert (context.params["protocol"], context.params["hops_max"]) == ("tcp", 2)


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], {}), (["--packet-timeout", "3s"], {"wait": "PT3S"}), (["--no-wait"], {})],
)
@pytest.mark.parametrize(("test", "command"), [("trace", shortcuts.trace), ("mtu", shortcuts.mtu)])
def test_waiting_for_packets_is_not_waiting_for_the_run(
    test: str, command: click.Command, options: list[str], expected: dict[str, str]
) -> None:
    """The spec has how long a packet is waited for if it is given, whether the run is followed."""
    context = command.make_context(test, ["b", *options])
    assert shortcuts.spec_of(test, context.params) == {"dest": "b", **expected}
