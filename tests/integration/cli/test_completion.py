"""Names and ids that shells complete, asked of the node."""

from __future__ import annotations

from typing import Any

import click
import pytest

from node.cli.commands import COMMANDS
from node.cli.completion import kinds_of
from node.cli.main import parley

RUN = "11111111-1111-4111-8111-111111111111"
TASK = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"


async def completed(bare: Any, typed: str, **more: str) -> list[str]:
    """Return what bash is given for a command line."""
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split(" ")) - 1)}
    process = await bare.start(**words, **more, _PARLEY_COMPLETE="bash_complete")
    out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    return [line.partition(",")[2] for line in out.decode().splitlines() if line]


@pytest.mark.nightly
async def test_names_and_ids_are_those_of_the_node(bare: Any, node: Any) -> None:
    """Ids are completed in their short form, and in the long one if more was typed."""
    node.add_task(TASK)
    node.add_run(RUN, TASK)
    node.documents["/v1/tests"] = {"items": [{"name": "rtt"}, {"name": "trace"}], "next": None}
    environment = {"PARLEY_SERVER": node.url, "PARLEY_TOKEN": node.token}
    assert await completed(bare, "parley run show ", **environment) == [RUN[:8]]
    assert await completed(bare, f"parley run show {RUN[:10]}", **environment) == [RUN]
    assert await completed(bare, "parley task cancel a", **environment) == [TASK[:8]]
    assert await completed(bare, "parley run follow ", **environment) == [RUN[:8], TASK[:8]]
    assert await completed(bare, "parley task create t", **environment) == ["trace"]
    given = f"parley --server {node.url} run list --test r"
    assert await completed(bare, given) == ["rtt"]


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "no address"])
@pytest.mark.nightly
async def test_there_are_none_without_an_answer(bare: Any, server: str) -> None:
    """Nothing is printed, also on standard error, if the node does not answer, or refuses."""
    assert await completed(bare, "parley run show ", PARLEY_SERVER=server) == []
    assert await completed(bare, "parley node show ", PARLEY_PROFILE="missing") == []


@pytest.mark.nightly
async def test_a_node_that_refuses_gives_none(ask: Any, bare: Any, a: Any) -> None:
    """A node that needs a token gives no names to others."""
    url = a.node.card.url
    assert (await ask("task", "list")).code == 0
    assert await completed(bare, "parley node show ", PARLEY_SERVER=url) == []
    with_token = await completed(
        bare, "parley node show ", PARLEY_SERVER=url, PARLEY_TOKEN="secret"
    )
    assert with_token == ["a"]


def test_arguments_that_name_something_are_completed() -> None:
    """Each kind of thing is completed by the verb that shows one of it."""
    context = click.Context(parley)
    for noun in ("task", "run", "node", "mesh", "campaign", "pool", "test", "archive"):
        assert noun in COMMANDS
        group = parley.get_command(context, noun)
        assert isinstance(group, click.Group)
        verb = "show" if "show" in group.list_commands(context) else "status"
        command = group.get_command(context, verb)
        assert command is not None
        argument = next(each for each in command.params if isinstance(each, click.Argument))
        assert [kind.path for kind in kinds_of(noun, verb, argument)] == [
            f"/{noun}{'es' if noun == 'mesh' else 's'}"
        ]
