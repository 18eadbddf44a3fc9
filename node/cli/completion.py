"""``parley completion``: print the script for completion in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


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
        msg = f"no completion for {shell}"
        raise click.UsageError(msg)
    script = kind(context.find_root().command, {}, "parley", "_PARLEY_COMPLETE")
    click.echo(script.source())
