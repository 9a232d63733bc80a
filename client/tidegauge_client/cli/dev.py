"""``tidegauge dev`` gathers the verbs that only those need who work on the rules; each is a verb of its own, too."""

from __future__ import annotations

import click

from tidegauge_client.cli.main import Verbs

GATHERED = ("explore", "simulate", "replay")


class Gathered(Verbs):
    """The verbs that are gathered, as far as they are installed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        known = super().list_commands(ctx)
        return [name for name in GATHERED if name in known]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one of them, and no other verb."""
        return super().get_command(ctx, cmd_name) if cmd_name in GATHERED else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Format the list."""
        rows = [(name, text) for name in self.list_commands(ctx) if (text := self.in_short(ctx, name)) is not None]
        with formatter.section("Verbs"):
            formatter.write_dl(rows)


@click.group("dev", cls=Gathered, subcommand_metavar="VERB [OPTIONS]...")
def dev() -> None:
    """Work on the rules of replication: search histories of the brokers' own core, without a cluster."""
