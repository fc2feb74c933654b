"""A group that lists its commands in their own order, and says which one may have been meant."""

import click


class OrderedGroup(click.Group):
    """A group whose help has its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all subcommands, in their order."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the subcommand; says which one may have been meant where there is none of this name."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            from kcast.client.resembling import did_you_mean

            ctx.fail(f"no such command {args[0]}{did_you_mean(args[0], names)}")
        return super().resolve_command(ctx, args)
