"""What a node has loaded when it begins to run is out of the garbage collector's sight, also without a launcher.

The rule: a full collection of a node that has just started looks at what came since, not at its modules.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from click import Command
from click.testing import CliRunner

from tidegauge_broker.server import verb as broker_verb
from tidegauge_broker.server.quorum import verb as controller_verb

LOADED = 50_000
"""A node's modules have more objects than that."""
BROKER = {
    "broker.id": "0",
    "listeners": "GRPC://127.0.0.1:29998",
    "zookeeper.connect": "127.0.0.1:1",
    "log.dirs": "{at}",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:29999",
    "controller.quorum.bootstrap.servers": "127.0.0.1:1",
    "log.dirs": "{at}",
}


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """This process is no node."""
    yield
    gc.unfreeze()


@pytest.mark.parametrize(
    ("module", "command", "settings"),
    [
        pytest.param(broker_verb, broker_verb.broker, BROKER, id="broker"),
        pytest.param(controller_verb, controller_verb.controller, CONTROLLER, id="controller"),
    ],
)
def test_what_is_loaded_is_frozen_when_a_node_begins_to_run(
    module: object, command: Command, settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []

    async def serve(*_: object) -> int:
        frozen.append(gc.get_freeze_count())
        return 0

    monkeypatch.setattr(module, "_serve", serve)
    gc.unfreeze()
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value.format(at=tmp_path)}\n" for name, value in settings.items()))
    done = CliRunner().invoke(command, ["--config", str(file)])
    assert done.exit_code == 0, done.output
    assert frozen[0] > LOADED
