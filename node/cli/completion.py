"""Complete names and ids in a shell: of tasks, runs, tests, tools, nodes, meshes, and others.

A shell waits for them with each Tab, so they are asked for a moment only, and there are none if the
node does not answer or refuses, or if its key has not been confirmed yet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from node.client.answers import Members
    from node.client.session import NodeSession


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes words in a shell.

    \b
      bash:  eval "$(parley completion bash)"       in ~/.bashrc
      zsh:   eval "$(parley completion zsh)"        in ~/.zshrc
      fish:  parley completion fish > ~/.config/fish/completions/parley.fish

    Names and ids are those of the node in use, if it answers soon and its key is known.
    """  # noqa: D301 - click's mark for lines to keep
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    script = kind(context.find_root().command, {}, "parley", "_PARLEY_COMPLETE")
    click.echo(script.source())


_MOMENT_S = 0.25
_MANY = 100
_DIGITS = 8


@dataclass(frozen=True)
class _Kind:
    """A list of the node: its path, the member to type, and the member that explains it."""

    path: str
    key: str
    help: str = ""
    paged: bool = True

    async def items(self, reader: NodeSession, incomplete: str) -> AsyncIterator[CompletionItem]:
        """Yield a completion for each object of the list whose name or id begins like this."""
        query: dict[str, object] = {"limit": _MANY} if self.paged else {}
        if self.key == "id" and incomplete:
            query["prefix"] = incomplete.lower()
        for record in (await reader.listed(self.path, query)).items:
            word = self._word(record, incomplete)
            if word.startswith(incomplete.lower() if self.key == "id" else incomplete):
                yield CompletionItem(word, help=str(record[self.help] or "") or None)

    def _word(self, record: Members, incomplete: str) -> str:
        """Return the name, or as many digits of an id as people type, or have begun to type."""
        word = str(record[self.key])
        return word[:_DIGITS] if self.key == "id" and len(incomplete) <= _DIGITS else word


_TASKS = _Kind("/tasks", "id", "headline")
_RUNS = _Kind("/runs", "id", "headline")
_RESERVATIONS = _Kind("/reservations", "id", "name")
_TOKENS = _Kind("/tokens", "id", "label")
_TESTS = _Kind("/tests", "name", "title", paged=False)
_TOOLS = _Kind("/tools", "name", paged=False)
_NODES = _Kind("/nodes", "name", "address", paged=False)
_MESHES = _Kind("/meshes", "name")
_CAMPAIGNS = _Kind("/campaigns", "name", "description")
_POOLS = _Kind("/pools", "name", "description")
_ARCHIVES = _Kind("/archives", "name", "archiver")

_NAMES = {
    "node": _NODES,
    "limits": _NODES,
    "test": _TESTS,
    "mesh": _MESHES,
    "campaign": _CAMPAIGNS,
    "pool": _POOLS,
    "archive": _ARCHIVES,
}
"""The kind of what an argument ``name`` means, by group."""

_ARGUMENTS: dict[str, tuple[_Kind, ...]] = {
    "task": (_TASKS,),
    "tasks": (_TASKS,),
    "run": (_RUNS,),
    "runs": (_RUNS,),
    "what": (_RUNS, _TASKS),
    "reservation": (_RESERVATIONS,),
    "reservations": (_RESERVATIONS,),
    "identifiers": (_TOKENS,),
    "test": (_TESTS,),
    "mesh": (_MESHES,),
    "archive": (_ARCHIVES,),
    "hosts": (_NODES,),
    "host": (_NODES,),
    "a": (_NODES,),
    "b": (_NODES,),
}

_OPTIONS = {
    "--task": _TASKS,
    "--run": _RUNS,
    "--test": _TESTS,
    "--tool": _TOOLS,
    "--mesh": _MESHES,
    "--campaign": _CAMPAIGNS,
    "--pool": _POOLS,
    "--archive": _ARCHIVES,
    "--participant": _NODES,
    "--source": _NODES,
    "--part": _NODES,
}


def complete_names(context: click.Context, command: click.Command | None) -> click.Command | None:
    """Make the parameters of a command complete with names from the node, if a shell asks."""
    if command is None or not context.resilient_parsing:
        return command
    group = context.info_name or ""
    for parameter in command.params:
        if kinds := kinds_of(group, command.name or "", parameter):
            setattr(parameter, "shell_complete", partial(_completions, kinds))  # noqa: B010 - a method
    return command


def kinds_of(group: str, verb: str, parameter: click.Parameter) -> tuple[_Kind, ...]:
    """Return the lists of the node whose names complete a parameter; none for other values."""
    if isinstance(parameter, click.Option):
        return tuple(_OPTIONS[each] for each in parameter.opts if each in _OPTIONS)
    name = parameter.name or ""
    if group == "run" and verb == "follow":
        return (_RUNS, _TASKS)
    if name in {"name", "names"}:
        return (_NAMES[group],) if group in _NAMES and verb != "add" else ()
    return _ARGUMENTS.get(name, ())


def _completions(
    kinds: Sequence[_Kind], context: click.Context, incomplete: str
) -> list[CompletionItem]:
    from node.cli.invocation import Invocation
    from node.cli.servers import known_tls
    from node.client.session import NodeSession, run_without_loop
    from node.model.errors import ParleyError
    from node.runtime.clock import BlockingClock

    invocation = context.ensure_object(Invocation)
    try:
        server = invocation.server_url()
        if (tls := known_tls(invocation, server)) is None:
            return []
        reader = NodeSession(
            server,
            invocation.access_token(),
            BlockingClock(),
            tls=tls,
            plain_http=invocation.allows_plain_http,
            limit_s=_MOMENT_S,
        )
        return run_without_loop(_items(kinds, reader, incomplete))
    except (ParleyError, click.ClickException, OSError):
        return []


async def _items(
    kinds: Sequence[_Kind], reader: NodeSession, incomplete: str
) -> list[CompletionItem]:
    async with reader:
        return [item for kind in kinds async for item in kind.items(reader, incomplete)]
