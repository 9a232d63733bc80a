"""A local cluster as ``tidegauge status -o json`` shows it: its processes, and who is the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidegauge_client.cluster_file import ClusterFile
from tidegauge_client.metadata import newest_view
from tidegauge_client.process_end import read_end
from tidegauge_lab.local import control_server, layout
from tidegauge_lab.local.processes import LabProcess, ProcessState
from tidegauge_lab.local.topology import Topology
from tidegauge_lab.observation import Observation, controller_of, kafka_brokers, metadata_in


def status_of(
    directory: Path,
    file: ClusterFile,
    topology: Topology,
    ask: Callable[[list[int]], dict[int, Observation]],
) -> dict[str, Any]:
    """Return the cluster now.

    Args:
        directory: the cluster's.
        file: its description.
        topology: the processes beside its brokers.
        ask: asks brokers for their health and metadata.
    """
    states = {broker_id: layout.broker_process(directory, broker_id) for broker_id in file.broker_ids}
    up = [broker_id for broker_id, process in states.items() if process.state is ProcessState.UP]
    alive = [broker_id for broker_id, process in states.items() if process.state is not ProcessState.DOWN]
    views = ask(up)
    silent = [broker_id for broker_id in up if views[broker_id].metadata is None]
    views |= ask(silent)  # asked twice: a busy machine is not a hung broker
    kafkas = kafka_brokers(metadata_in(views))
    controller = controller_of(views, alive, file.broker_ids, kafkas)

    def end_of(process: LabProcess) -> dict[str, Any] | None:
        """Return how a process ended; None if it is up, or was taken down."""
        if process.state is not ProcessState.DOWN:
            return None
        end = read_end(directory, process.name)
        return None if end is None else end.to_json()

    beside = topology.status(end_of)
    by_brokers = {"id": controller.broker, "broker": controller.broker, "epoch": controller.epoch}
    return {
        "bootstrap_servers": ",".join(file.bootstrap_servers),
        "kafka_bootstrap_servers": ",".join(file.kafka_bootstrap_servers),
        "mode": file.mode,
        "zookeeper": beside["zookeeper"],
        "controllers": beside["controllers"],
        "controller": beside.get("controller", by_brokers),
        "brokers": _brokers(directory, file, states, views, end_of),
        "kafka_brokers": [{"id": broker_id, "address": address} for broker_id, address in sorted(kafkas.items())],
        "control": control_server.url_of(directory),
    }


def _brokers(
    directory: Path,
    file: ClusterFile,
    states: Mapping[int, LabProcess],
    views: Mapping[int, Observation],
    end_of: Callable[[LabProcess], Any],
) -> list[dict[str, Any]]:
    said = metadata_in(views)
    live = newest_view(said).live if file.quorum is not None and said else None
    return [
        {
            "id": broker.id,
            "pid": states[broker.id].pid,
            "state": states[broker.id].state.value,
            "responds": broker.id in views and views[broker.id].metadata is not None,
            "fenced": None if live is None else broker.id not in live,
            "end": end_of(states[broker.id]),
            "address": broker.address,
            "kafka_address": broker.kafka_address,
            "dir": str(directory / f"broker-{broker.id}"),
        }
        for broker in sorted(file.brokers, key=lambda broker: broker.id)
    ]
