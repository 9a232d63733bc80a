"""``tidegauge controller``: one controller of a KRaft quorum in the foreground.

Talks on stderr; SIGTERM and Ctrl-C stop it the controlled way, exit 0. A problem that prevents a start is one sentence
on stderr, exit 1; a node that can't continue ends with exit 70.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from pathlib import Path

import click

from tidegauge.cli import EXIT_FAILED, directory_option, fail, output_option
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.near_names import did_you_mean
from tidegauge.settings import read_assignments
from tidegauge.settings.quorum import CONTROLLER_SETTINGS
from tidegauge_broker.server.log_lines import OneLine
from tidegauge_broker.server.long_lived import freeze_what_lives_long
from tidegauge_broker.server.quorum.controller_process import ControllerProcess
from tidegauge_broker.server.quorum.given_settings import given_settings, settings_options
from tidegauge_broker.server.quorum.node_settings import NodeSettings, read_node_settings

LOG = logging.getLogger("tidegauge.quorum")


def controller_settings(texts: dict[str, str]) -> NodeSettings:
    """Return the settings of a process that is a controller alone.

    Raises:
        TidegaugeError: INVALID_CONFIG, they are not, or a value is illegal.
    """
    settings = read_node_settings(texts, socket.gethostname())
    if settings.values["process.roles"] != ("controller",):
        roles = ",".join(settings.values["process.roles"])
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"process.roles is {roles}; this verb runs a process with process.roles=controller",
        )
    return settings


async def _serve(settings: NodeSettings) -> int:
    process = ControllerProcess(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.stopping.set)
    try:
        await process.start()
        waits = [loop.create_task(one.wait()) for one in (process.stopping, process.driver.ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()
    except BaseException:
        await process.stop()
        raise
    return await process.stop()


@click.command()
@settings_options("The controller's")
@click.option("--override", multiple=True, metavar="KEY=VALUE", help="A setting over the file's; may be repeated.")
@output_option
@directory_option
def controller(
    config: Path | None, *, environment: bool, override: tuple[str, ...], output: str, directory: Path
) -> None:
    """Run one controller of a KRaft quorum in the foreground.

    Settings have Kafka's names; its directory must have been formatted with the verb format.
    """
    del directory  # every verb takes it; a controller's directories are log.dirs
    if not __debug__:
        fail("python -O would switch the core's invariants off; run a controller without -O", output)
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(OneLine())
    logging.basicConfig(level=logging.INFO, handlers=[lines])
    try:
        texts = given_settings(config, environment=environment) | read_assignments(override, "--override")
        settings = controller_settings(texts)
        for name in settings.unknown:
            hint = did_you_mean(name, CONTROLLER_SETTINGS)
            LOG.warning("The setting %s is unknown here and has no effect%s", name, hint)
        freeze_what_lives_long()
        exit_code = asyncio.run(_serve(settings))
    except TidegaugeError as problem:
        fail(problem.message, output, code=problem.code, exit_code=EXIT_FAILED)
    except OSError as problem:
        fail(f"The controller can't start: {problem}", output, exit_code=EXIT_FAILED)
    raise SystemExit(exit_code)


if __name__ == "__main__":
    controller()
