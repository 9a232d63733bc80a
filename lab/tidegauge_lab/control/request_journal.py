"""The requests that arrived at all brokers while rules were in force, under numbers of the control."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_client.cluster_file import load_cluster_file
from tidegauge_lab.control.journal import Journal
from tidegauge_lab.local import layout
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.switches import Switches


class RequestJournal:
    """The journals of all brokers as one.

    Args:
        directory: of the cluster.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._journal = Journal()
        self._read: dict[int, tuple[int | None, int]] = {}

    async def read(self) -> Journal:
        """Take in what came since the last call, by time; return all."""
        file = load_cluster_file(self._directory)
        processes = {broker.id: layout.broker_process(self._directory, broker.id) for broker in file.brokers}
        up = [broker_id for broker_id, process in processes.items() if process.state is ProcessState.UP]
        async with Switches.of_cluster(file) as switches:

            async def ask(broker_id: int) -> list[dict[str, Any]]:
                pid = processes[broker_id].pid
                known, last = self._read.get(broker_id, (pid, 0))
                found: Sequence[lab_pb2.ArrivedRequest] = []
                with contextlib.suppress(TidegaugeError):  # a broker that has just died took its journal with it
                    found = await switches.requests_after(broker_id, last if known == pid else 0)
                if found:
                    self._read[broker_id] = (pid, found[-1].number)
                return [_entry(broker_id, one) for one in found]

            entries = [entry for of_broker in await asyncio.gather(*map(ask, up)) for entry in of_broker]
        self._journal.add(sorted(entries, key=lambda entry: int(entry["time_ms"])))
        return self._journal


def _entry(broker_id: int, one: lab_pb2.ArrivedRequest) -> dict[str, Any]:
    return {
        "time_ms": one.time_ms,
        "broker": broker_id,
        "api": one.api,
        "client_id": one.client_id,
        "partitions": [
            at.topic if at.partition < 0 else str(TopicPartition(at.topic, at.partition)) for at in one.partitions
        ],
        "group": one.group,
        "txn_id": one.transactional_id,
        "rules": list(one.rules),
        "done": one.done,
    }
