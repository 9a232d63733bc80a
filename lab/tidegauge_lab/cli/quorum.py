"""``add-controller``: make a running controller a voter of its quorum (kafka-metadata-quorum.sh add-controller).

Who it is and where it listens is read from the controller's own file and directory.
"""

from __future__ import annotations

import socket
from pathlib import Path

import click

from tidegauge.cli import offline_verb_options, print_json, print_text, reports_errors
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge.settings import read_properties
from tidegauge_broker.server.quorum.metadata_store import read_node_properties
from tidegauge_broker.server.quorum.node_settings import read_node_settings
from tidegauge_client.cli.common import JSON, run
from tidegauge_client.cli.quorum import bootstrap_controller, controllers
from tidegauge_client.quorum_admin import QuorumAdmin


@click.command("add-controller")
@click.option(
    "-c",
    "--config",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The properties file of the controller to add.",
)
@bootstrap_controller
@offline_verb_options
@reports_errors
def add_controller(
    config: Path, bootstrap_controller: str | None, output: str, directory: Path, bootstrap_server: str | None
) -> None:
    """Add a controller to the voters of its quorum.

    It must run, and have caught up with the leader: format its directory with --no-initial-controllers and start it.
    """
    del bootstrap_server  # every verb takes it; controllers are asked
    asked = controllers(bootstrap_controller, directory)
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
    text = uuid_text(directory_id)
    endpoints = [f"{one.listener}://{one.host}:{one.port}" for one in settings.endpoints]
    if output == JSON:
        print_json({"controller": settings.node_id, "directory_id": text, "endpoints": endpoints})
    else:
        named = ", ".join(endpoints)
        print_text(f"Added controller {settings.node_id} with directory id {text} and endpoints: {named}")
