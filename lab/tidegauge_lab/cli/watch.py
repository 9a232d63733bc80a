"""``tidegauge watch``: the cluster live in a browser, with buttons to break it (docs/watch.md).

Serves one page on 127.0.0.1 until Ctrl-C. With ``-b`` or its variable the brokers are only looked at. ``--lab``
starts a lab's cluster first, unless it is there; ``--scenario`` opens the page with a story that waits before its first
step.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegauge.cli import BOOTSTRAP_VARIABLE, print_json, print_text, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cli.common import servers
from tidegauge_client.cluster_file import load_cluster_file
from tidegauge_lab.cli.common import complete_lab, complete_scenario, is_kraft, kraft_option
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.labs.catalogue import lab_named
from tidegauge_lab.labs.model import Lab
from tidegauge_lab.labs.running import begin, lab_in
from tidegauge_lab.scenario.loader import in_kraft, load

if TYPE_CHECKING:
    from tidegauge_lab.scenario.model import Scenario
    from tidegauge_lab.watch.sources import Source

DEFAULT_PORT = 19080


@click.command()
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port on 127.0.0.1; 0 takes any that is free.",
)
@click.option(
    "--lab",
    metavar="NAME",
    shell_complete=complete_lab,
    help="Start this lab's cluster in --dir, unless it is there, and show its page.",
)
@click.option(
    "--scenario",
    metavar="NAME-or-FILE",
    shell_complete=complete_scenario,
    help="Play this scenario step by step, on a cluster of its own.",
)
@kraft_option
@verb_options
@lab_verb
def watch(
    port: int,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
    lab: str | None,
    scenario: str | None,
    *,
    kraft: bool,
) -> None:
    """Show the cluster live in a browser, on 127.0.0.1; with --dir also buttons to kill, pause, isolate, hold."""
    remote = bootstrap_server is not None or bool(os.environ.get(BOOTSTRAP_VARIABLE))
    directory = directory.absolute()
    if remote and (lab or scenario):
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"--lab and --scenario start clusters here: leave -b and ${BOOTSTRAP_VARIABLE} out",
        )
    if kraft and not (lab or scenario):
        raise click.UsageError("Option --kraft is for the cluster that --lab or --scenario starts")
    kraft = (lab or scenario) is not None and is_kraft(asked=kraft)
    story = None if not scenario else in_kraft(scenario) if kraft else load(scenario)
    if lab:
        _begin(lab_named(lab), directory, kraft=kraft)
    elif story is None and not remote:
        load_cluster_file(directory)
    asyncio.run(_serve(port, output, directory, servers(bootstrap_server, directory) if remote else None, story))


def _begin(wanted: Lab, directory: Path, *, kraft: bool) -> None:
    """Start a lab's cluster, unless it is there."""
    if lab_in(directory) is not wanted:
        begin(wanted, directory, kraft=kraft)


async def _serve(port: int, output: str, directory: Path, bootstrap: list[str] | None, story: Scenario | None) -> None:
    from tidegauge_lab.local import ports  # noqa: PLC0415 - only this verb pays for it
    from tidegauge_lab.watch import actions, server  # noqa: PLC0415 - only this verb pays for it
    from tidegauge_lab.watch.hub import Hub  # noqa: PLC0415 - only this verb pays for it
    from tidegauge_lab.watch.sources import LabSource, RemoteSource  # noqa: PLC0415 - the same
    from tidegauge_lab.watch.teaching import Teaching  # noqa: PLC0415 - the same

    source: Source = LabSource(directory) if bootstrap is None else RemoteSource(bootstrap)
    ports.Reservations().require_no_clusters(port, "--port")
    listener = server.listen(port)
    taken: int = listener.getsockname()[1]
    hub = Hub(source)
    teaching = Teaching(hub, directory, story) if bootstrap is None else None

    async def do(action: actions.Action) -> str:
        return await actions.do(directory if teaching is None else teaching.directory, action)

    app = server.application(
        hub, None if teaching is None else do, port=taken, token=secrets.token_urlsafe(32), teaching=teaching
    )
    url = f"http://127.0.0.1:{taken}/"
    if output == "json":
        print_json({"url": url})
    else:
        print_text(f"{url}  (Ctrl-C ends it)")
    if teaching is not None and story is not None:
        await teaching.play(story)
    await server.serve(app, hub, listener, teaching)
