"""``parley run export``, ``verify``, ``replay``: a run in one file that anybody can check."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from node.cli.invocation import Invocation
from node.cli.options import options
from node.cli.output import Record, RecordLayout, cell_text, printable_text
from node.cli.references import find_run, short
from node.cli.session import Session, asks_node, run_command, runs_here

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


CHANGED = 1
"""Exit code: a bundle was changed, or another outcome came out."""
UNPROVEN = 3
"""Exit code: nothing was changed, but something is not proven; or there was nothing to repeat."""

_EXPORTED = RecordLayout("run,file,missing")
_VERIFIED = RecordLayout("run,outcome,changed,unproven")
_REPLAYED = RecordLayout("run,outcome,differences")
_STDIO = "-"
_VALUE_SHOWN = 60


@click.command("export")
@click.argument("run")
@click.argument("file", required=False, metavar="[FILE|-]")
@asks_node
async def export(session: Session, run: str, file: str | None) -> None:
    """Write everything about a run into FILE, signed by its participants and its lead.

    \b
      parley run export @-1                   # writes parley-run-7c1e90ab.json
      parley run export 7c1e90ab evidence.json
      parley run export 7c1e90ab - | gzip > evidence.json.gz

    The file has the task, the planning attempts, each participant's part with command,
    circumstances and output, and the outcome. Only the lead of a run has all this. No file is
    overwritten.
    """  # noqa: D301 - click's mark for lines to keep
    found = await find_run(session, run)
    path = Path(file or f"parley-run-{short(found.id)}.json")
    bundle = await session.client.run_bundle(found.id)
    text = (json.dumps(bundle, indent=2, ensure_ascii=False) + "\n").encode()
    if file == _STDIO:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return
    write_new(path, text)
    exported = {"run": str(found.id), "file": str(path), "missing": bundle["missing"]}
    session.output.print_one(exported, _EXPORTED, _exported_view)


@click.command("verify")
@click.argument("file", metavar="FILE|-")
@options("""
    --identity NAME=KEY... as identities  The key of a node, ed25519:…, as its owner tells it. May
                                be repeated.
    --known                     Accept the keys of the nodes that the node knows, too.
""")
@runs_here
def verify(invocation: Invocation, file: str, identities: tuple[str, ...], *, known: bool) -> int:
    """Check the bundle in FILE: who signed what, and whether anything was changed since.

    \b
      parley run verify evidence.json --identity a=ed25519:… --identity b=ed25519:…
      parley run verify evidence.json --known

    No node is asked, except with --known. The keys in a bundle prove nothing by themselves: give
    those of its nodes as their owners tell them (parley node show). The outcome of the run is what
    its lead says; parley run replay repeats it.

    \b
      0  everything is signed, by keys that you have given, and nothing was changed
      1  something was changed: each fault is named
      2  FILE is no bundle
      3  nothing was changed, but something is not signed, or by a key that you have not given
    """  # noqa: D301 - click's mark for lines to keep
    given = dict(map(_named_identity, identities))
    if not known:
        return _verify(invocation, file, given, frozenset())

    async def with_known(session: Session) -> int:
        nodes = await session.client.nodes()
        return _verify(invocation, file, given, frozenset(node.identity for node in nodes.items))

    return run_command(click.get_current_context(), with_known)


@click.command("replay")
@click.argument("file", metavar="FILE|-")
@runs_here
def replay(invocation: Invocation, file: str) -> int:
    """Repeat merge, figures and verdict from the bundle in FILE, and compare with its outcome.

    \b
      parley run replay evidence.json

    No node is asked: the tests that are installed here merge the parts again. Each field that
    differs is listed with both values.

    \b
      0  the same came out
      1  something else came out, or the bundle was changed
      2  FILE is no bundle, or its test is not installed here
      3  there was nothing to repeat: the run was never merged
    """  # noqa: D301 - click's mark for lines to keep
    record, code = _replay_outcome(file_bytes(file))
    invocation.writer().print_one(record, _REPLAYED, _replayed_view)
    return code


def _verify(
    invocation: Invocation, file: str, given: Mapping[str, str], known: frozenset[str]
) -> int:
    from node.results.bundles.verification import (
        ConfirmedKeys,
        Outcome,
        check_bundle,
        names_in,
        parse_bundle,
    )

    bundle = parse_bundle(file_bytes(file))
    if strangers := sorted(given.keys() - names_in(bundle)):
        names = ", ".join(sorted(names_in(bundle)))
        raise click.UsageError(f"the bundle has no node {strangers[0]}, only {names}")
    found = check_bundle(bundle, ConfirmedKeys(given, known))
    record = {
        "run": bundle["run"]["id"],
        "outcome": found.outcome.value,
        "signatures": [asdict(signature) for signature in found.signatures],
        "changed": found.changed,
        "unproven": found.unproven,
        "missing": bundle["missing"],
    }
    invocation.writer().print_one(record, _VERIFIED, _verified_view)
    return {Outcome.VERIFIED: 0, Outcome.CHANGED: CHANGED, Outcome.UNPROVEN: UNPROVEN}[
        found.outcome
    ]


def _replay_outcome(text: bytes) -> tuple[dict[str, Any], int]:
    """Return the record that ``run replay`` prints, and its exit code (0 to 3)."""
    from node.execution.catalog import Capabilities
    from node.results.bundles.making import plugin_version
    from node.results.bundles.replay import differences_of
    from node.results.bundles.verification import MERGED, ConfirmedKeys, check_bundle, parse_bundle
    from node.runtime.version import program_version

    bundle = parse_bundle(text)
    made, test = bundle["made"], bundle["run"]["test"]
    record: dict[str, Any] = {
        "run": bundle["run"]["id"],
        "bundle": {"version": made["version"], "test_plugin": made["test_plugin"]},
        "replay": {"version": program_version(), "test_plugin": plugin_version(test)},
        "changed": check_bundle(bundle, ConfirmedKeys()).changed,
        "differences": [],
    }
    if record["changed"]:
        return record | {"outcome": "changed"}, CHANGED
    if bundle["outcome"]["state"] not in MERGED:
        return record | {"outcome": "nothing to repeat"}, UNPROVEN
    record["differences"] = list(map(asdict, differences_of(bundle, Capabilities())))
    if record["differences"]:
        return record | {"outcome": "different"}, CHANGED
    return record | {"outcome": "same"}, 0


def _named_identity(written: str) -> tuple[str, str]:
    from node.trust.identities import public_of

    name, _, identity = written.partition("=")
    try:
        public_of(identity)
    except ValueError as error:
        raise click.UsageError(f"--identity {written}: {error}; write NAME=ed25519:…") from None
    return name, identity


def file_bytes(file: str) -> bytes:
    """Return the bytes of a file, or of standard input for ``-``.

    :raises click.UsageError: it cannot be read.
    """
    try:
        return sys.stdin.buffer.read() if file == _STDIO else Path(file).read_bytes()
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from None


def write_new(path: Path, text: bytes) -> None:
    """Write the bytes to a new file; never overwrite one.

    :raises click.UsageError: it exists, or cannot be written.
    """
    try:
        with path.open("xb") as opened:
            opened.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} exists; name another file, or remove it") from None
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from None


def _exported_view(exported: Record) -> str:
    lines = [f"✓ {printable_text(exported['file'])}"]
    lines += [f"  not in it: {printable_text(lack)}" for lack in exported["missing"]]
    lines.append(
        f"  check it: parley run verify {printable_text(exported['file'])} --identity NAME=KEY"
    )
    return "\n".join(lines)


def _verified_view(found: Record) -> str:
    heads = {
        "verified": "✓ verified: everything is signed, and nothing was changed",
        "unproven": "? not changed, but not all of it is proven",
        "changed": "✗ changed: do not trust it",
    }
    lines = [f"{heads[found['outcome']]} (run {short(found['run'])})"]
    lines += [f"  ✗ {printable_text(fault)}" for fault in found["changed"]]
    lines += [f"  ? {printable_text(lack)}" for lack in found["unproven"]]
    lines += [f"  ✓ {_signature_text(each)}" for each in found["signatures"] if each["confirmed"]]
    lines += [f"  not in it: {printable_text(lack)}" for lack in found["missing"]]
    return "\n".join(lines)


def _signature_text(signature: Record) -> str:
    words = f"{signature['subject']}: signed by {signature['name']}, {signature['identity']}"
    return printable_text(f"{words}, at {signature['signed_at']}")


def _replayed_view(found: Record) -> str:
    run = f"(run {short(found['run'])})"
    versions = [f"  {side}: {_versions_text(found[side])}" for side in ("bundle", "replay")]
    if found["outcome"] == "changed":
        return "\n".join(
            [f"✗ not repeated: the bundle was changed {run}"]
            + [f"  ✗ {printable_text(fault)}" for fault in found["changed"]]
        )
    if found["outcome"] == "nothing to repeat":
        return f"? nothing to repeat: the run was never merged {run}"
    head = f"✓ the same outcome {run}"
    if found["differences"]:
        head = f"✗ another outcome {run}"
    return "\n".join([head, *versions, *_difference_lines(found["differences"])])


def _versions_text(side: Record) -> str:
    return printable_text(f"Parley {side['version']}, test of {side['test_plugin']}")


def _difference_lines(differences: Sequence[Record]) -> list[str]:
    return [
        f"  {printable_text(each['field'])}: {_short_text(each['bundle'])} in the bundle, "
        f"{_short_text(each['replay'])} now"
        for each in differences
    ]


def _short_text(value: object) -> str:
    text = printable_text("null" if value is None else cell_text(value))
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}…"
