"""``add-controller``: make a running controller a voter of its quorum (kafka-metadata-quorum.sh add-controller).

Its id and its listeners are read from the controller's own file and directory. Without a file a local cluster gets one
more controller, which is started first.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NamedTuple

import click

from tidegauge.cli import controller_verb_options, print_json, print_text, say
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge.settings import read_properties
from tidegauge_broker.server.quorum.node_properties import read_node_properties
from tidegauge_broker.server.quorum.node_settings import read_node_settings
from tidegauge_client.cli.common import JSON, run
from tidegauge_client.cli.quorum import bootstrap_controller, controllers
from tidegauge_client.cluster_file import CONTROLLER_LISTENER
from tidegauge_client.quorum_admin import QuorumAdmin
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.local.cluster import LocalCluster


@click.command("add-controller")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The properties file of the controller to add.  [default: a new one of the cluster in --dir]",
)
@bootstrap_controller
@controller_verb_options
@lab_verb
def add_controller(
    config: Path | None, bootstrap_controller: str | None, output: str, directory: Path, bootstrap_server: str | None
) -> None:
    """Add a controller to the voters of its quorum.

    With --config it must run, and have caught up with the leader: format its directory with --no-initial-controllers
    and start it. Without, the cluster in --dir gets one more controller, which is started and made a voter.
    """
    del bootstrap_server  # every verb takes it; controllers are asked
    if config is not None:
        _shown(_added(config, controllers(bootstrap_controller, directory)), output)
        return
    if bootstrap_controller is not None:
        raise click.UsageError("Option --bootstrap-controller is for a controller of your own, which --config names")
    cluster = LocalCluster(directory)
    controller_id, directory_id = cluster.add_controller()
    assert cluster.file.quorum is not None
    entry = cluster.file.quorum.controller(controller_id)
    _shown(_Added(controller_id, directory_id, [f"{CONTROLLER_LISTENER}://{entry.address}"]), output)
    view = cluster.quorum()
    count = 0 if view is None else len(view.voters)
    if count and count % 2 == 0:
        say(
            f"The quorum has {count} voters now, of which {count // 2 + 1} are a majority: no more of them may fail "
            f"than of {count - 1}; add another one"
        )


class _Added(NamedTuple):
    """A new voter: its id, the id of its directory, its listeners as texts."""

    id: int
    directory_id: bytes
    endpoints: list[str]


def _added(config: Path, asked: list[str]) -> _Added:
    """Make the controller of a properties file a voter.

    Raises:
        TidegaugeError: INVALID_CONFIG, the file is no controller's; or the leader refuses.
    """
    settings = read_node_settings(read_properties(config.read_text(encoding="utf-8")), socket.gethostname())
    if not settings.is_controller:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"process.roles of {config} does not contain controller")
    properties = read_node_properties(Path(settings.metadata_directory))
    directory_id = properties.directory_id
    assert directory_id is not None

    async def work() -> None:
        async with QuorumAdmin(asked) as admin:
            await admin.add_voter(settings.node_id, directory_id, settings.endpoints)

    run(work())
    endpoints = [f"{one.listener}://{one.host}:{one.port}" for one in settings.endpoints]
    return _Added(settings.node_id, directory_id, endpoints)


def _shown(added: _Added, output: str) -> None:
    text = uuid_text(added.directory_id)
    if output == JSON:
        print_json({"controller": added.id, "directory_id": text, "endpoints": added.endpoints})
    else:
        named = ", ".join(added.endpoints)
        print_text(f"Added controller {added.id} with directory id {text} and endpoints: {named}")
