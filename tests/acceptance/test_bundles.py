"""Runs of real nodes, exported, and checked by somebody who has the file and public keys alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from node.trust.keys import NodeKey
from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider
from tests.support.command_line import CommandResult, run_command

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("tidy")]


async def _bare(tmp_path: Path, *words: str, stdin: str = "") -> CommandResult:
    """Run a command for somebody who has no node and no token."""
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COLUMNS": "300"}
    return await run_command(words, {**bare, "PARLEY_SERVER": "http://127.0.0.1:9"}, stdin)


async def _measured(lead: Outsider, test: str, *participants: Outsider, **spec: Json) -> Json:
    """Let nodes measure something, and return the run."""
    task = await lead.create(test, *participants, spec=spec)
    return await lead.finished(await lead.run(task))


async def _exported(lead: Outsider, run: Json, tmp_path: Path) -> Path:
    file = tmp_path / "bundle.json"
    done = await parley(lead, "run", "export", run["id"], str(file), "-o", "table")
    assert done.code == 0, done.err
    assert str(file) in done.out
    return file


async def _keys(*nodes: Outsider) -> list[str]:
    """Return the options that give the keys of nodes, as their owners read them there."""
    cards = [await node.get("/v1/nodes/self") for node in nodes]
    return [f"--identity={card['name']}={card['identity']}" for card in cards]


async def test_a_third_party_checks_a_run_of_three_nodes(
    a: Outsider, b: Outsider, c: Outsider, tmp_path: Path
) -> None:
    """The file and the public keys suffice; without the keys nothing is proven."""
    run = await _measured(a, "idle", a, b, c, duration="PT1S")
    file = await _exported(a, run, tmp_path)
    verified = await _bare(
        tmp_path, "run", "verify", str(file), *await _keys(a, b, c), "-o", "table"
    )
    assert verified.code == 0, verified.out
    assert verified.out.startswith("✓ verified: everything is signed, and nothing was changed")
    for name in "abc":
        assert f"✓ part of {name}: signed by {name}, ed25519:" in verified.out
    unknown = await _bare(tmp_path, "run", "verify", str(file), *await _keys(a, b))
    assert unknown.code == 3
    [lack] = json.loads(unknown.out)["unproven"]
    assert lack.startswith("part of c: signed by ed25519:")
    assert lack.endswith(", which you have not confirmed")
    assert (await parley(c, "run", "verify", "--known", str(file))).code == 0
    assert (await _bare(tmp_path, "run", "replay", str(file))).code == 0


async def test_a_tampered_part_is_named(a: Outsider, b: Outsider, tmp_path: Path) -> None:
    """A changed result of b is found in the part, and in what the lead signed."""
    run = await _measured(a, "idle", a, b, duration="PT1S")
    file = await _exported(a, run, tmp_path)
    bundle = json.loads(file.read_text())
    bundle["parts"][1]["result"]["slept_ms"] = 1.0
    keys = await _keys(a, b)
    text = json.dumps(bundle)
    found = await _bare(tmp_path, "run", "verify", "-", *keys, stdin=text)
    assert found.code == 1
    assert json.loads(found.out)["changed"] == [
        "bundle: parts is not what a signed",
        "part of b: result is not what was signed",
    ]
    assert (await _bare(tmp_path, "run", "replay", "-", stdin=text)).code == 1
    wrong = f"--identity=b={NodeKey.generate().identity}"
    swapped = await _bare(tmp_path, "run", "verify", str(file), keys[0], wrong)
    assert swapped.code == 1
    assert json.loads(swapped.out)["changed"][0].startswith("b: its key is ed25519:")


@pytest.mark.parametrize(
    "test",
    [
        "latency",
        "tcp",
        pytest.param("clock", marks=pytest.mark.nightly),
        pytest.param("interface", marks=pytest.mark.nightly),
        pytest.param("latencybg", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.nightly
async def test_each_kind_of_result_comes_out_again(
    a: Outsider, b: Outsider, tmp_path: Path, test: str
) -> None:
    """Merge, figures and verdict of a real run are the same from its bundle, streamed ones too."""
    at = urlsplit(a.url)
    specs: dict[str, Json] = {
        "latency": {"source": "a", "dest": "b", "count": 20, "interval": "PT0.02S"},
        "clock": {"source": "a", "dest": "b"},
        "tcp": {"dest": at.hostname, "port": at.port},
        "interface": {"interface": "lo", "duration": "PT5S", "each": "PT1S"},
        "latencybg": {"source": "a", "dest": "b", "duration": "PT5S", "each": "PT1S"},
    }
    run = await _measured(a, test, **specs[test])
    file = await _exported(a, run, tmp_path)
    members = run["participants"]
    nodes = [node for node in (a, b) if node.name in members]
    verified = await _bare(tmp_path, "run", "verify", str(file), *await _keys(*nodes))
    assert verified.code == 0, verified.out
    replayed = await _bare(tmp_path, "run", "replay", str(file))
    assert (replayed.code, json.loads(replayed.out)["differences"]) == (0, []), replayed.out
    bundle = json.loads(file.read_text())
    assert len(bundle["intervals"]) == (5 if test in {"interface", "latencybg"} else 0)


@pytest.mark.nightly
async def test_files_are_not_overwritten_and_faults_say_what_to_do(
    a: Outsider, b: Outsider, tmp_path: Path
) -> None:
    """An existing file, a run that goes on, one of another lead, and no bundle are named."""
    run = await _measured(a, "idle", a, b, duration="PT1S")
    file = await _exported(a, run, tmp_path)
    before = file.read_bytes()
    again = await parley(a, "run", "export", run["id"], str(file))
    assert (again.code, file.read_bytes()) == (2, before)
    assert "exists; name another file" in again.err
    assert json.loads((await parley(a, "run", "export", run["id"], "-")).out)["version"] == 1
    elsewhere = await parley(b, "run", "export", run["id"], "-")
    assert elsewhere.code == 3
    assert "a leads run" in elsewhere.err
    (tmp_path / "none.json").write_text("{}")
    assert (await _bare(tmp_path, "run", "verify", str(tmp_path / "none.json"))).code == 2
    stranger = await _bare(tmp_path, "run", "verify", str(file), "--identity=x=ed25519:y")
    assert (stranger.code, "write NAME=ed25519:" in stranger.err) == (2, True)
    [only, *_] = await _keys(a)
    stranger = await _bare(tmp_path, "run", "verify", str(file), only.replace("=a=", "=z="))
    assert (stranger.code, "has no node z, only a, b" in stranger.err) == (2, True)
