"""The two clusters that play a scenario: three brokers of Apache Kafka 3.9, or of Tidegauge, each on its own ZooKeeper.

Both have the ids, settings and directories of a ``LocalCluster``; on the one side Apache Kafka's processes stand in for
its brokers. A process of Apache Kafka reaches ZooKeeper through a gate of its own, which can be closed.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol, Self

from tests.integration.apache_kafka import KafkaBroker, settings_as_kafkas
from tests.waiting import until
from tests.zookeeper_view import ZooKeeperView

from tidegauge.faults.model import WantedFault
from tidegauge.partition import TopicPartition
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.scenario import Scenario
from tidegauge_lab.scenario.cluster_connections import ClusterConnections

LIMIT_SECONDS = 120.0
REFUSED_AS_REGISTERED = "KeeperErrorCode = NodeExists"
"""Logged by Apache Kafka before it ends because its id is registered by a session that has not ended."""

LONGER: Mapping[str, Mapping[str, str]] = {"restart-within-session": {"zookeeper.session.timeout.ms": "20000"}}
"""Settings of both sides, so that what must happen within a session does: a process of Apache Kafka takes seconds to
start."""

INTERNAL = {
    "__consumer_offsets": "offsets.topic.num.partitions",
    "__transaction_state": "transaction.state.log.num.partitions",
}
"""How many partitions Apache Kafka's brokers take an internal topic to have, if it is created after they start."""


class Side(Protocol):
    """A cluster that plays."""

    name: str
    cluster: LocalCluster

    def begin(self) -> None: ...
    def start(self, broker_id: int) -> str: ...
    def stop(self, broker_id: int) -> None: ...
    def kill(self, broker_id: int) -> None: ...
    def pause(self, broker_id: int) -> None: ...
    def resume(self, broker_id: int) -> None: ...
    def isolate(self, broker_id: int, fault: WantedFault) -> None: ...
    def heal(self, broker_id: int) -> None: ...
    def sync(self, broker_id: int, at: TopicPartition) -> None: ...
    def drop_unsynced(self, broker_id: int) -> None: ...
    def responds(self, broker_id: int) -> bool: ...


class Gate:
    """A port that leads to another one until it is closed."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._is_open = True
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                self._lead(caller)

    def _lead(self, caller: socket.socket) -> None:
        try:
            there = socket.create_connection(self._target)
        except OSError:
            caller.close()
            return
        with self._lock:
            if not self._is_open:
                caller.close()
                there.close()
                return
            self._ends += (caller, there)
        for source, sink in ((caller, there), (there, caller)):
            threading.Thread(target=_carry, args=(source, sink), daemon=True).start()

    def shut(self) -> None:
        """End all connections, and refuse new ones."""
        with self._lock:
            self._is_open = False
            for end in self._ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._ends.clear()

    def heal(self) -> None:
        """Let connections through again."""
        with self._lock:
            self._is_open = True

    def close(self) -> None:
        """Accept no more, and end all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.shut()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    """Carry bytes until either end is closed; then both are."""
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class _Cluster:
    """Common parts of both sides: a cluster's directories, its ZooKeeper, and a look into that."""

    def __init__(self, scenario: Scenario, directory: Path, settings: Mapping[str, str]) -> None:
        self._scenario = scenario
        partitions = {INTERNAL[one.name]: str(len(one.assignment)) for one in scenario.topics if one.name in INTERNAL}
        own = {**scenario.all_settings, **partitions, **LONGER.get(scenario.name, {}), **settings}
        self.cluster = LocalCluster.create(directory, scenario.brokers, settings=own)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.down(grace_seconds=0)

    def zookeeper(self) -> ZooKeeperView:
        """Return a new look into ZooKeeper; the caller closes it."""
        return ZooKeeperView(self.cluster.file.zookeeper_address)

    def _in_order(self) -> list[int]:
        """Return the ids of all brokers, the intended controller first."""
        ids = [broker.id for broker in self.cluster.file.brokers]
        return sorted(ids, key=lambda one: (one != self._scenario.controller, one))


class KafkaSide(_Cluster):
    """Apache Kafka's processes on the ids, ports and directories of a cluster.

    Raises:
        Unavailable: Apache Kafka can't be had here.
    """

    name = "Kafka"

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        super().__init__(scenario, directory, {})
        self._gates: dict[int, Gate] = {}
        self._brokers: dict[int, KafkaBroker] = {}
        self._paused: set[int] = set()
        self._synced: dict[Path, int] = {}
        host, port = self.cluster.file.zookeeper_address.split(":")
        for one in self.cluster.file.brokers:
            gate = self._gates[one.id] = Gate((host, int(port)))
            self._brokers[one.id] = KafkaBroker(
                one.id,
                settings_as_kafkas(self.cluster, one.id),
                port=one.kafka_port,
                log_dirs=layout.broker_log_directories(self.cluster.directory, one.id),
                zookeeper=f"127.0.0.1:{gate.port}",
                directory=directory.with_name(f"{directory.name}-printed"),
            )

    def __exit__(self, *details: object) -> None:
        for broker in self._brokers.values():
            broker.kill()
        for gate in self._gates.values():
            gate.close()
        super().__exit__(*details)

    def begin(self) -> None:
        """Start ZooKeeper, the controller's broker, and the others."""
        self.cluster.start(ZOOKEEPER)
        first, *others = self._in_order()
        self._brokers[first].start()
        self._brokers[first].wait_started()
        for broker_id in others:
            self._brokers[broker_id].start()
        for broker_id in others:
            self._brokers[broker_id].wait_started()

    def start(self, broker_id: int) -> str:
        """Start a broker; return what came of it."""
        broker = self._brokers[broker_id]
        broker.start()
        until(lambda: broker.pid is None or broker.is_up(), LIMIT_SECONDS, f"broker {broker_id} is up, or has ended")
        if broker.pid is not None:
            return "started"
        assert REFUSED_AS_REGISTERED in broker.log(), broker.log()[-4_000:]
        with closing(self.zookeeper()) as view:
            until(lambda: view.broker_epoch(broker_id) is None, LIMIT_SECONDS, f"the session of {broker_id} has ended")
        broker.start()
        broker.wait_started()
        return "refused while its former session lives"

    def stop(self, broker_id: int) -> None:
        """Stop it by a controlled shutdown."""
        self._brokers[broker_id].stop()
        self._brokers[broker_id].wait_ended()

    def kill(self, broker_id: int) -> None:
        """SIGKILL."""
        self._brokers[broker_id].kill()

    def pause(self, broker_id: int) -> None:
        """SIGSTOP."""
        self._paused.add(broker_id)
        self._brokers[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        """SIGCONT."""
        self._brokers[broker_id].resume()
        self._paused.discard(broker_id)

    def isolate(self, broker_id: int, fault: WantedFault) -> None:
        """Partition it from ZooKeeper."""
        assert fault["from"] == "zookeeper", f"no gate stands before {fault['from']}"
        self._gates[broker_id].shut()

    def heal(self, broker_id: int) -> None:
        """Let it reach ZooKeeper again."""
        self._gates[broker_id].heal()

    def sync(self, broker_id: int, at: TopicPartition) -> None:
        """Note how long its log is: Apache Kafka can't be asked to flush, and a power loss is played by hand."""
        directory = layout.broker_data(self.cluster.directory, broker_id) / str(at)
        self._synced |= {path: path.stat().st_size for path in directory.glob("*.log")}

    def drop_unsynced(self, broker_id: int) -> None:
        """Take from a dead broker's logs the records written after ``sync``."""
        data = layout.broker_data(self.cluster.directory, broker_id)
        for path, size_bytes in self._synced.items():
            if path.is_relative_to(data):
                with path.open("r+b") as file:
                    file.truncate(size_bytes)

    def responds(self, broker_id: int) -> bool:
        """Whether its process lives and is not stopped."""
        return self._brokers[broker_id].pid is not None and broker_id not in self._paused


class TidegaugeSide(_Cluster):
    """Tidegauge."""

    name = "Tidegauge"

    def __init__(self, scenario: Scenario, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(scenario, directory, settings or {})
        self._connections: ClusterConnections | None = None

    def __exit__(self, *details: object) -> None:
        if self._connections is not None:
            self._connections.__exit__(*details)
        super().__exit__(*details)

    def begin(self) -> None:
        """Start ZooKeeper, the controller's broker, and the others."""
        self.cluster.start(ZOOKEEPER)
        first, *others = self._in_order()
        self.cluster.start(first)
        self.cluster.start(*others)
        self._connections = ClusterConnections(self.cluster)

    @property
    def _switches(self) -> ClusterConnections:
        assert self._connections is not None, "begin() comes first"
        return self._connections

    def start(self, broker_id: int) -> str:
        """Start a broker, which waits for the end of its former session; return what came of it."""
        self.cluster.start(broker_id)
        self._switches.reconnect([broker_id])
        return "started"

    def stop(self, broker_id: int) -> None:
        """Stop it by a controlled shutdown."""
        self.cluster.stop(broker_id)

    def kill(self, broker_id: int) -> None:
        """SIGKILL."""
        self.cluster.kill(broker_id)

    def pause(self, broker_id: int) -> None:
        """SIGSTOP."""
        self.cluster.pause(broker_id)

    def resume(self, broker_id: int) -> None:
        """SIGCONT."""
        self.cluster.resume(broker_id)

    def isolate(self, broker_id: int, fault: WantedFault) -> None:
        """Partition it from ZooKeeper, by the lab's switch."""
        self._switches.set_fault(broker_id, fault)

    def heal(self, broker_id: int) -> None:
        """Let it reach ZooKeeper again."""
        self._switches.heal(broker_id)

    def sync(self, broker_id: int, at: TopicPartition) -> None:
        """Flush its log."""
        self._switches.sync(broker_id, at)

    def drop_unsynced(self, broker_id: int) -> None:
        """Take from a dead broker's files the unflushed part."""
        self.cluster.cut_power(broker_id)

    def responds(self, broker_id: int) -> bool:
        """Whether its process lives and is not stopped."""
        return self.cluster.state_of(broker_id) is ProcessState.UP
