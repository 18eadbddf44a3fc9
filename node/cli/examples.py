"""Examples of commands whose help has none, shown at its end, and in man pages."""

from __future__ import annotations

import click

EXAMPLES: dict[str, tuple[str, ...]] = {
    "up": ("", "--name a --listen 192.0.2.1:8642 --allow-remote"),
    "lab demo": ("", "--check"),
    "lab up": ("--nodes 3", "--nodes 2 --namespaces --delay-ms 20 --loss 0.01"),
    "task list": (
        "",
        "--state active --test rtt",
        "--mesh backbone --participant b",
        "--target 192.0.2.7 -o ids",
    ),
    "task show": ("@-1", "7c1e -o yaml"),
    "task release": ("7c1e",),
    "run list": (
        "",
        "--state failed,missed --from -1d",
        "--upcoming",
        "--task 7c1e -o csv",
        "--mesh backbone --verdict suspicious,contaminated",
    ),
    "run show": ("@-1", "7c1e -o json"),
    "run follow": ("@-1", "7c1e --timeout 10m"),
    "run result": ("@-1", "7c1e --raw --part b", "7c1e --last 10"),
    "run cancel": ("7c1e 9d20",),
    "schedule": ("", "--from -1h --to +2h"),
    "explain": ("@-1", "7c1e --all", "7c1e --slot 2026-12-01T10:00:00Z"),
    "simulate": ("--list", "pools --days 2"),
    "reservation list": ("", "-o wide"),
    "reservation show": ("@-1",),
    "reservation remove": ("7c1e",),
    "campaign list": ("", "-o yaml"),
    "campaign show": ("lab",),
    "campaign usage": ("", "lab --since -7d"),
    "campaign remove": ("lab",),
    "pool list": ("",),
    "pool show": ("world",),
    "pool edit": ("world --description 'all nodes with IPv6'",),
    "pool sets": ("",),
    "pool set-policy": ("world balanced",),
    "pool remove": ("world",),
    "mesh list": ("",),
    "mesh plan": ("mesh.toml",),
    "mesh remove": ("backbone",),
    "archive list": ("", "-o yaml"),
    "archive show": ("hook",),
    "archive edit": ("hook --runs all", "hook --jq .result"),
    "archive remove": ("hook",),
    "archive kinds": ("",),
    "archive test": ("hook",),
    "archive backlog": ("",),
    "archive deliveries": ("--archive hook", "--run @-1"),
    "node list": ("", "-o wide"),
    "node show": ("", "b --jq .identity"),
    "node add": ("https://b.example:8642",),
    "node remove": ("b",),
    "node pardon": ("b",),
    "node compare": ("b",),
    "node share": ("",),
    "node rekey": ("",),
    "node revoke": ("--prepare", "--file revocation.jws", "b --yes"),
    "node unset": ("site",),
    "token list": ("",),
    "token revoke": ("7c1e",),
    "secret list": ("",),
    "secret remove": ("api-token",),
    "webhook list": ("",),
    "webhook test": ("pager",),
    "webhook remove": ("pager",),
    "test list": ("",),
    "test show": ("rtt", "throughput --jq .spec"),
    "tool list": ("", "-o wide"),
    "plugin list": ("",),
    "plugin new": ("acme-echo --kind test",),
    "plugin test": ("rtt", "rtt --run --spec dest=192.0.2.7"),
}
"""By command, the arguments of its examples."""


def with_examples(path: str, command: click.Command | None) -> click.Command | None:
    """Give a command its examples, which its help ends with."""
    if command is not None and command.epilog is None and path in EXAMPLES:
        lines = (f"  parley {path} {arguments}".rstrip() for arguments in EXAMPLES[path])
        command.epilog = "\n".join(("\b", "Examples:", *lines))
    return command
