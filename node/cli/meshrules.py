"""``parley mesh rules``: the thresholds of a mesh file as rules for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from node.cli.meshfile import is_toml
from node.cli.output import printable_text
from node.mesh.document import parse
from node.mesh.rules import prometheus_rules
from node.model.errors import InvalidDocument


@click.command("rules")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def rules(file: str) -> None:
    """Print rules for Prometheus, one for each threshold of a mesh FILE; no node is asked.

    \b
      parley mesh rules backbone.toml > /etc/prometheus/rules/backbone.yaml
    """  # noqa: D301 - click's mark for lines to keep
    parsed = parse(Path(file).read_text("utf-8"), toml=is_toml(file))
    if parsed.document is None or parsed.faults:
        raise InvalidDocument(list(parsed.faults))
    click.echo(printable_text(prometheus_rules(parsed.document)), nl=False)
