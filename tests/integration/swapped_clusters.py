"""Clusters all of whose nodes are Tidegauge's or Apache Kafka's, by turns, on the same directories.

``Swapped`` is one in ZooKeeper mode, ``SwappedKraft`` one in KRaft mode, whose controllers are swapped too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.apache_kafka import KafkaSide
from tests.integration.kafka_complaints import FATAL
from tests.integration.mixed_kraft import OF_BROKERS, OF_CONTROLLERS, MixedKraft
from tests.integration.quorum_nodes import KAFKA, OURS
from tests.integration.swap_clients import COMPACTED, LIMIT_SECONDS, PLAIN, SHORT_SEGMENTS, SMALL_SEGMENTS, TRANSFERS
from tests.waiting import until
from tests.zookeeper_view import ZooKeeperView

from tidegauge_client.quorum_admin import QuorumView
from tidegauge_lab.local.cluster import LocalCluster

TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))
OF_A_START = (
    "could not be established. Node may not be available",
    "was unsuccessful (kafka.controller.RequestSendThread)",
    "fails to send request (type: ",
    "failed to change state for partition",
    "but cannot become follower since the new leader",
    "Received UNKNOWN_TOPIC_ID from the leader",
    "Error in response for fetch request",
    "marked as failed (kafka.server.ReplicaFetcherThread)",
    "Non-monotonic update of high watermark",
    "The coordinator failed to write an epoch fence transition",
    "Rollback of ongoing transaction",
    "Number of insync replicas for partition __transaction_state",
    "is insufficient to satisfy the min.isr requirement of 2 for partition __transaction_state",
)
"""Lines that Kafka logs when three of its own start together too: peers are not up, no leaders yet, the ISR too small.

After they were killed, a follower's checkpoint of the high watermark may be newer than its leader's.
"""
OF_A_SMALL_HEAP = {"log.cleaner.dedupe.buffer.size": "4194304"}
"""A Kafka broker allocates another buffer when a setting of its cleaner changes; 128 MiB do not fit in twice."""
OF_ALL_NODES = (
    "Graceful shutdown timed out",  # a controller stops, and no quorum is left to hand its leadership to
    "Graceful shutdown of RaftClient failed",  # likewise
    "The coordinator failed to write an epoch fence transition",  # brokers stop while a transaction ends
    "Rollback of ongoing transaction",  # likewise
    "is insufficient to satisfy the min.isr requirement of 2 for partition __transaction_state",  # likewise
    "Received UNKNOWN_TOPIC_OR_PARTITION from the leader for partition made-",  # it is made and deleted
    "Received UNKNOWN_TOPIC_ID from the leader for partition made-",  # likewise, in KRaft mode
)
"""Lines of Kafka's nodes in KRaft mode when all of them stop or start together, besides a single one's."""
OFTEN = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "replica.lag.time.max.ms": "10000",
}
"""Settings of brokers whose logs are to be cleaned and checkpointed within a test."""


class Znodes(NamedTuple):
    """Znodes that stay through a swap, and ones that only rise.

    Attributes:
        kept: payloads of topics, settings, the cluster's id and the features, by path.
        rising: controller epoch, producer ids given out, and each partition's leader epoch, by path.
        left: znodes of requests and notifications that should have been dealt with.
    """

    kept: dict[str, bytes | None]
    rising: dict[str, int]
    left: list[str]

    @classmethod
    def of(cls, view: ZooKeeperView) -> Znodes:
        """Read them."""
        tree = {path: znode.data for path, znode in view.tree().items()}
        states = {path: json.loads(data or b"{}") for path, data in tree.items() if path.endswith("/state")}
        rising = {path: int(state["leader_epoch"]) for path, state in states.items()}
        rising["/controller_epoch"] = int(tree["/controller_epoch"] or b"0")
        rising["/latest_producer_id_block"] = int(json.loads(tree["/latest_producer_id_block"] or b"")["block_end"])
        kept = {
            path: data
            for path, data in tree.items()
            if re.fullmatch(
                r"/brokers/topics/[^/]+|/config/(topics|brokers|clients|users|ips)/.*|/cluster/id|/feature", path
            )
        }
        waiting = (
            r"/(admin/(delete_topics/.*|reassign_partitions|preferred_replica_election)|isr_change_notification/.*)"
        )
        return cls(kept, rising, [path for path in tree if re.fullmatch(waiting, path)])

    def problems(self, later: Znodes) -> list[str]:
        """Return the changed or fallen values."""
        found = [
            f"{path}: {data!r} is {later.kept.get(path)!r}"
            for path, data in self.kept.items()
            if later.kept.get(path) != data
        ]
        found += [f"{path} fell from {value}" for path, value in self.rising.items() if later.rising[path] < value]
        return [*found, *(f"{path} is left" for path in later.left)]


class MetadataLogs(NamedTuple):
    """Files of a quorum's controllers that stay through a swap.

    Attributes:
        view: the quorum as its leader described it.
        committed: lines of records below the high watermark, by controller.
        snapshots: names of the snapshots, by controller.
        voted: epoch of ``quorum-state``, by controller.
        identities: contents of ``meta.properties``, by controller.
    """

    view: QuorumView
    committed: dict[int, list[str]]
    snapshots: dict[int, set[str]]
    voted: dict[int, int]
    identities: dict[int, dict[str, str]]

    @classmethod
    def of(cls, cluster: MixedKraft) -> MetadataLogs:
        """Read them."""
        cluster.wait_quorum()
        view = cluster.quorum.wait_leader()
        found = cls(view, {}, {}, {}, {})
        for node in cluster.quorum.nodes:
            log = node.log_directory / "__cluster_metadata-0"
            lines = (re.search(r"^\| offset: (\d+) .* payload: (.*)", line) for line in node.dump().splitlines())
            found.committed[node.id] = [
                one[0] for one in lines if one is not None and int(one[1]) < view.high_watermark
            ]
            found.snapshots[node.id] = {path.name for path in log.glob("*.checkpoint")}
            found.voted[node.id] = int(json.loads((log / "quorum-state").read_text())["leaderEpoch"])
            text = (node.log_directory / "meta.properties").read_text().splitlines()
            found.identities[node.id] = dict(line.split("=", 1) for line in text if not line.startswith("#"))
        return found

    def problems(self, later: MetadataLogs) -> list[str]:
        """Return the changed or fallen values."""
        found = []
        if later.view.epoch <= self.view.epoch:
            found.append(f"the epoch was {self.view.epoch} and is {later.view.epoch}")
        if [one.id for one in later.view.voters] != [one.id for one in self.view.voters]:
            found.append(f"the voters were {self.view.voters} and are {later.view.voters}")
        for node_id, lines in self.committed.items():
            if later.committed[node_id][: len(lines)] != lines:
                found.append(f"controller {node_id} has other records below {self.view.high_watermark}")
            if not self.snapshots[node_id] <= later.snapshots[node_id]:
                found.append(f"controller {node_id} has lost {self.snapshots[node_id] - later.snapshots[node_id]}")
            if later.voted[node_id] < self.voted[node_id]:
                found.append(f"controller {node_id} has forgotten its epoch {self.voted[node_id]}")
            if later.identities[node_id] != self.identities[node_id]:
                found.append(f"controller {node_id} was {self.identities[node_id]}, is {later.identities[node_id]}")
        return found


class Swapped:
    """A cluster in ZooKeeper mode.

    Args:
        cluster: it, with two log directories for each broker.
        directory: for what Kafka's brokers print.

    Attributes:
        is_ours: whether Tidegauge's brokers run.
        servers: the addresses of the brokers.
        segments: settings of topics, by which segments are rolled.
    """

    segments = SMALL_SEGMENTS

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster, self.kafka = cluster, KafkaSide(cluster, directory)
        self.is_ours = True
        self.servers = ",".join(cluster.kafka_bootstrap_servers)
        self._ids = [broker.id for broker in cluster.file.brokers]

    def kept(self) -> Znodes:
        """Return what ZooKeeper holds of the cluster now."""
        with closing(ZooKeeperView(self.cluster.file.zookeeper_address)) as view:
            return Znodes.of(view)

    def end(self, *, clean: bool) -> None:
        """End all brokers; those that were killed are forgotten by ZooKeeper before this returns."""
        side: Any = self.kafka
        if self.is_ours:
            self.cluster.stop(*self._ids) if clean else self.cluster.kill(*self._ids)
        else:
            side.stop() if clean else side.kill()
        with closing(ZooKeeperView(self.cluster.file.zookeeper_address)) as view:
            until(lambda: not view.children("/brokers/ids"), LIMIT_SECONDS, "the sessions have ended")

    def start_other(self) -> None:
        """Start the brokers of the other kind."""
        self.is_ours = not self.is_ours
        if self.is_ours:
            self.cluster.start(*self._ids)
        else:
            self.kafka.start()

    def judge(self, history: Path) -> None:
        """Have the accountant judge Tidegauge's brokers, or read what Kafka's have logged."""
        if self.is_ours:
            account(history, "--dir", str(self.cluster.directory))
        else:
            check(self.kafka.complaints(), OF_A_START)


class SwappedKraft:
    """A cluster in KRaft mode of three controllers and three brokers; it begins as Tidegauge's.

    Args:
        directory: for its files.
        classpath: of Kafka's jars.

    Attributes:
        is_ours: whether Tidegauge's nodes run.
        servers: the addresses of the brokers.
        segments: settings of topics, by which segments are rolled.
    """

    segments = SHORT_SEGMENTS

    def __init__(self, directory: Path, classpath: str) -> None:
        often = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
        self.cluster = MixedKraft(
            directory,
            (OURS,) * 3,
            (OURS,) * 3,
            classpath,
            of_controllers=OF_CONTROLLERS | often,
            of_brokers=OF_BROKERS | often | OFTEN | OF_A_SMALL_HEAP,
            directories=2,
        )
        self.is_ours, self.servers = True, self.cluster.servers

    def kept(self) -> MetadataLogs:
        """Return what the controllers' directories hold now."""
        found = MetadataLogs.of(self.cluster)
        assert all(found.snapshots.values()), "each controller has made snapshots"
        return found

    def end(self, *, clean: bool) -> None:
        """End all nodes, brokers first."""
        with self.cluster.acts.during("stop" if clean else "kill", *self._ids):
            if clean:
                for node in self.cluster.brokers:
                    self.cluster.stop(node.id)
                for controller in self.cluster.quorum.nodes:
                    controller.stop()  # the last ones have no quorum to hand over to
            else:
                for node in self.cluster.nodes:
                    node.kill()

    @property
    def _ids(self) -> list[int]:
        return [node.id for node in self.cluster.nodes]

    def start_other(self) -> None:
        """Start the nodes of the other kind."""
        self.is_ours = not self.is_ours
        for node in self.cluster.nodes:
            node.become(OURS if self.is_ours else KAFKA)
        with self.cluster.acts.during("start", *self._ids):
            self.cluster.start(*(node.id for node in self.cluster.quorum.nodes))
            self.cluster.start(*self.cluster.ids)
            self.cluster.wait_all_in_sync()

    def judge(self, history: Path) -> None:
        """Have the accountant judge Tidegauge's brokers, or read what Kafka's nodes have logged."""
        if self.is_ours:
            account(history, "-b", ",".join(node.grpc_address for node in self.cluster.brokers))
        else:
            found = [one for one in self.cluster.complaints() if not any(part in one.text for part in OF_ALL_NODES)]
            assert not found, "\n".join(map(str, found))


def account(history: Path, *where: str) -> None:
    """The accountant finds nothing: in the history, in the committed log, and between the replicas."""
    for topic in (PLAIN, TRANSFERS):
        command = [TIDEGAUGE, "verify", topic, "--transactions", str(history), *where]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([TIDEGAUGE, "verify", COMPACTED, *where], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check(complaints: Mapping[int, Sequence[str]], expected: Sequence[str]) -> None:
    """Check that Kafka has logged only expected lines at WARN and above."""
    found = [
        f"{node} {line}"
        for node, lines in complaints.items()
        for line in lines
        if FATAL.search(line) or not any(part in line for part in expected)
    ]
    assert not found, "\n".join(found)
