"""``tidegauge control``: the control interface over HTTP for a cluster that runs (docs/steering.md).

``tidegauge up --control`` starts the same server as a process of the cluster.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import directory_option, output_option, print_json, print_text, say
from tidegauge_lab.cli.verbs import AddressType, lab_verb

DEFAULT_CONTROL = "127.0.0.1:19079"
TOKEN_VARIABLE = "TIDEGAUGE_CONTROL_TOKEN"  # noqa: S105 - a variable's name
_LOOPBACK = ("127.", "localhost", "::1")


def control_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that both verbs share."""
    return click.option(
        "--control-name",
        multiple=True,
        metavar="NAME",
        help="A host name, besides localhost and addresses, under which the control interface is reached; "
        "may be repeated.",
    )(command)


def read_address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT`` or ``PORT``.

    Raises:
        ValueError: it is neither.
    """
    host, separator, port = text.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= len("65535")
    if not is_number or int(port) > 65535 or (separator and not host):
        raise ValueError(f"{text!r} is no address: write HOST:PORT, or PORT for 127.0.0.1")
    return host.strip("[]") or "127.0.0.1", int(port)


LISTEN_ADDRESS = AddressType(read_address)
"""Where the control interface listens: ``HOST:PORT``, or ``PORT``."""


@click.command()
@click.option(
    "--listen",
    type=LISTEN_ADDRESS,
    default=DEFAULT_CONTROL,
    show_default=True,
    metavar="HOST:PORT",
    help="Port 0: any free one.",
)
@control_options
@directory_option
@output_option
@lab_verb
def control(listen: str, control_name: tuple[str, ...], directory: Path, output: str) -> None:
    """Steer the running cluster over HTTP, from any language; GET /v1/openapi.json describes it."""
    host, port = read_address(listen)
    asyncio.run(_serve(host, port, control_name, directory.absolute(), output))


async def _serve(host: str, port: int, names: tuple[str, ...], directory: Path, output: str) -> None:
    from tidegauge_lab.control import server  # noqa: PLC0415 - it needs the extra
    from tidegauge_lab.control.steering import Control  # noqa: PLC0415 - only this verb pays for it
    from tidegauge_lab.local import control_server, layout, ports  # noqa: PLC0415 - the same

    steering = Control(directory)
    ports.Reservations().require_no_clusters(port, "--listen")
    listener = server.listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}"
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token and not host.startswith(_LOOPBACK):
        say(f"Whoever reaches {url} can break this cluster; {TOKEN_VARIABLE} makes each request need a token")
    try:  # before the server runs, whose own words for a start that fails are a traceback
        await steering.start()
    except BaseException:
        listener.close()
        await steering.close()
        raise
    app = server.application(steering, names=names, token=token)

    def is_ready() -> None:
        if layout.control_process(directory).pid == os.getpid():
            control_server.note_url(directory, url)
        if output == "json":
            print_json({"url": url})
        else:
            print_text(f"{url}  (Ctrl-C ends it)")

    await server.serve(app, listener, is_ready)


if __name__ == "__main__":
    control()
