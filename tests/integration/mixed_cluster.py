"""A cluster on one ZooKeeper, some of whose brokers are Tidegauge's and the others Apache Kafka's, id by id.

All speak Kafka's protocol among themselves (``inter.broker.listener.name``). A broker keeps its id, its port and its
directories when it changes its kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.clients.programs import KAFKA
from tests.integration.administered import Administered
from tests.integration.apache_kafka import KafkaBroker, KafkaSide
from tests.integration.conftest import MakeCluster
from tests.integration.swap_clients import LIMIT_SECONDS, retried
from tests.waiting import until
from tests.zookeeper_view import ZooKeeperView

from tidegauge_lab.local.cluster import LocalCluster

SETTINGS = {
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.leader.rebalance.enable": "false",
    "zookeeper.session.timeout.ms": "10000",
    "offsets.topic.num.partitions": "9",
    "transaction.state.log.num.partitions": "9",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "replica.lag.time.max.ms": "10000",
}

EXPECTED = (
    "Listeners are not identical",  # Tidegauge's brokers register a gRPC listener too
    "No meta.properties file under dir",  # its directory is new
    "marked as failed",  # a follower in an older epoch waits for the controller, as among Kafka's own
    "Connection to node",  # a broker was stopped or killed
    "Error in response for fetch request",  # likewise
    "zookeeper",
    "failed to change state for partition",  # both others were stopped: a partition without a live member of its ISR
    "was unsuccessful (kafka.controller.RequestSendThread)",  # they were stopped before they responded
    "fails to send request (type",
    "Received UNKNOWN_TOPIC_ID from the leader",  # a leader that has its role before its metadata
    "since the new leader -1 is unavailable",  # a controller's successor writes that first where a leader has died
    # A controller that was replaced at once, as ``make_controller`` does until the right one is elected:
    "from an old controller",  # its requests are fenced
    "since its controller epoch",  # likewise
    "ControllerMovedException",  # likewise
    "java.lang.InterruptedException",  # its threads that send are interrupted
    "Non-monotonic update of high watermark",  # a new leader's is one fetch behind the former one's
    "OutOfOrderSequenceException",  # a producer with several requests in flight retries them at a new leader
)
"""Lines that a Kafka broker may log at WARN and above, each with its reason."""

UNKNOWN_PARTITION = re.compile(r"Received UNKNOWN_TOPIC_OR_PARTITION from the leader for partition (.+)-\d+\. ")
"""Logged by a follower's fetcher if the leader has no such partition; expected of a topic that is being deleted.

The controller sends StopReplica to all replicas at once (``TopicDeletionManager``), and the leader may have handled it
before the follower has: a race among Kafka's own brokers too.
"""


def is_of_a_deletion(line: str, deletions: Mapping[str, str]) -> bool:
    """Whether a fetcher logged this since the topic's deletion began.

    Args:
        line: of a Kafka broker's log, with its time first.
        deletions: topics, and when their deletions began, in the log's format.
    """
    found = UNKNOWN_PARTITION.search(line)
    return found is not None and found[1] in deletions and line >= deletions[found[1]]


class MixedCluster(Administered):
    """The mixed cluster.

    Args:
        make_cluster: the fixture.
        kafka_port: of the first of three listeners in a row for Kafka's protocol.
        directory: for what Kafka's brokers print.
        kafkas: ids of the brokers that are Apache Kafka's at first.
        size: how many brokers there are.

    Raises:
        Unavailable: Apache Kafka can't be had.
    """

    def __init__(
        self, make_cluster: MakeCluster, kafka_port: int, directory: Path, kafkas: Iterable[int], size: int = 3
    ) -> None:
        self.cluster: LocalCluster = make_cluster(up=False, settings=SETTINGS, kafka_port=kafka_port, brokers=size)
        self.ids = [broker.id for broker in self.cluster.file.brokers]
        self._side = KafkaSide(self.cluster, directory)
        self.kafkas = set(kafkas)
        super().__init__(",".join(self.cluster.kafka_bootstrap_servers), KAFKA)
        self._deletions: dict[str, str] = {}

    def kafka(self, broker_id: int) -> KafkaBroker:
        """Return the Kafka broker that has this id, or may have it."""
        return self._side.brokers[broker_id]

    def is_kafkas(self, broker_id: int) -> bool:
        """Whether Apache Kafka runs on this id."""
        return broker_id in self.kafkas

    def start(self, *ids: int) -> None:
        """Start brokers of the kind that they are."""
        for broker_id in ids:
            if self.is_kafkas(broker_id):
                self.kafka(broker_id).start()
        ours = [broker_id for broker_id in ids if not self.is_kafkas(broker_id)]
        if ours:
            self.cluster.start(*ours)
        for broker_id in ids:
            if self.is_kafkas(broker_id):
                self.kafka(broker_id).wait_started()

    def stop(self, broker_id: int) -> None:
        """Stop a broker by a controlled shutdown."""
        if self.is_kafkas(broker_id):
            self.kafka(broker_id).stop()
            self.kafka(broker_id).wait_ended()
        else:
            self.cluster.stop(broker_id)
        self.wait_registered(set(self.registered()) - {broker_id})

    def kill(self, broker_id: int) -> None:
        """SIGKILL a broker, and wait for the end of its session, since Kafka refuses to start before."""
        left = set(self.registered()) - {broker_id}
        if self.is_kafkas(broker_id):
            self.kafka(broker_id).kill()
        else:
            self.cluster.kill(broker_id)
        self.wait_registered(left)

    def change(self, broker_id: int) -> None:
        """Stop a broker, and start one of the other kind in its place."""
        self.stop(broker_id)
        self.kafkas ^= {broker_id}
        self.start(broker_id)

    def end(self) -> None:
        """Kill Apache Kafka's processes; the fixture takes the others down."""
        self._side.kill()

    def unexpected(self) -> list[str]:
        """Return Apache Kafka brokers' lines at WARN and above, without expected ones."""
        lines = [line for one in self._side.brokers.values() for line in one.complaints(of_all_starts=True)]
        rest = [line for line in lines if not any(known in line for known in EXPECTED)]
        return [line for line in rest if not is_of_a_deletion(line, self._deletions)]

    # State

    def _view(self, look: Callable[[ZooKeeperView], Any]) -> Any:
        with closing(ZooKeeperView(self.cluster.file.zookeeper_address)) as view:
            return look(view)

    def registered(self) -> list[int]:
        """Return the ids that are registered now."""
        return [int(name) for name in self._view(lambda view: view.children("/brokers/ids"))]

    def wait_registered(self, ids: Collection[int]) -> None:
        """Wait until just these brokers are registered."""
        until(lambda: set(self.registered()) == set(ids), LIMIT_SECONDS, f"registered: {ids}")

    def controller(self) -> int:
        """Return the controller; -1 while there is none."""

        def look(view: ZooKeeperView) -> int:
            data = view.znode("/controller").data if view.exists("/controller") else None
            return int(json.loads(data)["brokerid"]) if data else -1

        return int(self._view(look))

    def make_controller(self, broker_id: int) -> None:
        """Have a broker elected as controller: the znode is deleted until the right one was the fastest."""

        def is_elected() -> bool:
            if self.controller() not in {-1, broker_id}:
                self._view(lambda view: view.delete("/controller"))
            until(lambda: self.controller() >= 0, LIMIT_SECONDS, "there is a controller")
            return self.controller() == broker_id

        until(is_elected, LIMIT_SECONDS, f"broker {broker_id} is the controller")

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it is nowhere."""
        now = datetime.now()  # noqa: DTZ005 - local time, as in Kafka's logs
        self._deletions[name] = now.isoformat(" ", "milliseconds").replace(".", ",")

        def delete() -> None:
            admin = self.admin()
            for future in admin.delete_topics([name]).values():
                future.result(LIMIT_SECONDS)

        retried(delete)
        path = f"/brokers/topics/{name}"
        until(lambda: not self._view(lambda view: view.exists(path)), LIMIT_SECONDS, f"{name} is deleted")

    def assignment(self, topic: str) -> dict[str, Any]:
        """Return the topic's znode."""
        path = f"/brokers/topics/{topic}"
        return dict(json.loads(self._view(lambda view: view.znode(path).data)))
