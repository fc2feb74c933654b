"""`kcast completion SHELL`: prints what makes a shell complete kcast's commands and options."""

import click
from click.shell_completion import get_completion_class

VARIABLE = "_KCAST_COMPLETE"  # by which the shell asks kcast for completions, as click has it


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that makes SHELL complete commands and options of kcast.

    It needs bash 4.4 or later, zsh, or fish.

    \b
    Examples: for this shell only; for every shell from now on (bash, zsh, fish)
      source <(kcast completion bash)
      kcast completion bash > ~/.local/share/bash-completion/completions/kcast
      kcast completion zsh > ~/.zfunc/_kcast     # a directory of your fpath
      kcast completion fish > ~/.config/fish/completions/kcast.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "kcast", VARIABLE).source())
