"""``tidegauge watch``: the cluster live in a browser, with buttons to break it (docs/watch.md).

Serves one page on 127.0.0.1 until Ctrl-C. With ``-b`` or its variable the brokers are only looked at.
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegauge.cli import BOOTSTRAP_VARIABLE, print_json, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.extras import install_command
from tidegauge_client.cli.common import servers
from tidegauge_lab.cli.common import lab_verb

if TYPE_CHECKING:
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
@verb_options
@lab_verb
def watch(port: int, output: str, directory: Path, bootstrap_server: str | None) -> None:
    """Show the cluster live in a browser, on 127.0.0.1; with --dir also buttons to kill, pause, isolate, hold."""
    _require_extra()
    remote = bootstrap_server is not None or bool(os.environ.get(BOOTSTRAP_VARIABLE))
    asyncio.run(_serve(port, output, directory.absolute(), servers(bootstrap_server, directory) if remote else None))


def _require_extra() -> None:
    try:
        import starlette  # noqa: F401, PLC0415 - only looked for
        import uvicorn  # noqa: F401, PLC0415 - the same
    except ModuleNotFoundError as missing:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"`tidegauge watch` needs {missing.name}, which is not installed: {install_command('watch')}",
        ) from None


async def _serve(port: int, output: str, directory: Path, bootstrap: list[str] | None) -> None:
    from tidegauge_lab.watch import actions, server  # noqa: PLC0415 - they need the extra
    from tidegauge_lab.watch.hub import Hub  # noqa: PLC0415 - only this verb pays for it
    from tidegauge_lab.watch.sources import LabSource, RemoteSource  # noqa: PLC0415 - the same

    source: Source = LabSource(directory) if bootstrap is None else RemoteSource(bootstrap)
    listener = server.listen(port)
    taken: int = listener.getsockname()[1]
    hub = Hub(source)
    do = functools.partial(actions.do, directory) if bootstrap is None else None
    app = server.application(hub, do, port=taken, token=secrets.token_urlsafe(32))
    url = f"http://127.0.0.1:{taken}/"
    if output == "json":
        print_json({"url": url})
    else:
        click.echo(f"{url}  (Ctrl-C ends it)")
    await server.serve(app, hub, listener)
