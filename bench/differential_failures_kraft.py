"""The shipped scenarios of failures in KRaft mode, on Apache Kafka 4.3.1 and on Tidegauge (``make differential``).

Each side is three brokers and a controller of its kind, or as many controllers as a story of the quorum has. The
player, the looks and what is compared are those of ``differential_failures``, but that leader, leader epoch and ISR are
those of the brokers' metadata, there being no ZooKeeper. Exit 0: no difference; 1: a difference, or a scenario that did
not come to its end.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import differential_failures_rules as rules
from differential_failures_look import Eyes
from differential_failures_player import Player
from differential_failures_quorum import Controllers, QuorumSidePlayer
from differential_failures_shares import STATE, DurableSharePlayer, ShareSide
from differential_failures_sides import INTERNAL
from tests.clients.programs import Unavailable, kafka_classpath
from tests.integration.kraft_nodes import FEATURES
from tests.integration.mixed_kraft import OF_BROKERS, OF_CONTROLLERS, MixedKraft
from tests.integration.quorum_nodes import KAFKA, OURS

from tidegauge.errors import TidegaugeError
from tidegauge.faults.model import WantedFault
from tidegauge.partition import TopicPartition
from tidegauge_lab.local.broker_settings import OF_ZOOKEEPER, PROFILES
from tidegauge_lab.scenario import Scenario, load, shipped_names
from tidegauge_lab.scenario.outcome import StepFailed
from tidegauge_lab.scenario.quorum_steps import QUORUM_STEPS
from tidegauge_lab.scenario.readers import NO_LEADER
from tidegauge_lab.scenario.share_steps import SHARE_STEPS, ExpectShare, WaitShare
from tidegauge_lab.scenario.step_base import Step

NOT_KAFKAS = (OF_ZOOKEEPER, "lab.", "replica.truncation", "event.log")
"""Beginnings of the names of settings that Apache Kafka 4 does not know."""


class Side:
    """Three brokers and their controllers, all of one kind (``differential_failures_sides.Side``).

    Args:
        scenario: that is played, as it is in KRaft mode.
        directory: for its files.
        kind: of all nodes.
        classpath: of Kafka's jars.
    """

    def __init__(self, scenario: Scenario, directory: Path, kind: str, classpath: str) -> None:
        self.name = "Kafka" if kind == KAFKA else "Tidegauge"
        counted = {**INTERNAL, STATE.topic: "share.coordinator.state.topic.num.partitions"}
        partitions = {counted[one.name]: str(len(one.assignment)) for one in scenario.topics if one.name in counted}
        given = PROFILES["fast"] | scenario.all_settings | partitions
        own = {name: value for name, value in given.items() if not name.startswith(NOT_KAFKAS)}
        directory.mkdir(parents=True)
        self._mixed = MixedKraft(
            directory,
            [kind] * (scenario.controllers if rules.is_about_the_quorum(scenario) else 1),
            [kind] * scenario.brokers,
            classpath,
            [*FEATURES, *(word for one in scenario.features.items() for word in ("--feature", "{}={}".format(*one)))],
            of_controllers=OF_CONTROLLERS | own,
            of_brokers=OF_BROKERS | own,
        )
        self.controllers = Controllers(self._mixed)
        self._paused: set[int] = set()
        self._synced: dict[Path, int] = {}
        self._topics = [one.name for one in scenario.topics]
        for node in self._mixed.brokers:  # where the lab's readers of files look
            (directory / f"broker-{node.id}").mkdir()
            (directory / f"broker-{node.id}" / "data").symlink_to(node.directories[0])
        brokers = [SimpleNamespace(id=node.id, host="127.0.0.1", kafka_port=node.port) for node in self._mixed.brokers]
        self.cluster: Any = SimpleNamespace(
            directory=directory,
            file=SimpleNamespace(brokers=brokers),
            kafka_bootstrap_servers=self._mixed.servers.split(","),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._mixed.close()

    def begin(self) -> None:
        """Start all nodes."""
        self._mixed.begin()

    def start(self, broker_id: int) -> str:
        """Start a broker; return what came of it."""
        self._mixed.start(broker_id)
        return "started"

    def stop(self, broker_id: int) -> None:
        """Stop it by a controlled shutdown."""
        self._mixed.stop(broker_id)

    def kill(self, broker_id: int) -> None:
        """SIGKILL."""
        self._mixed.kill(broker_id)

    def pause(self, broker_id: int) -> None:
        """SIGSTOP."""
        self._paused.add(broker_id)
        self._mixed.node(broker_id).send(signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        """SIGCONT."""
        self._mixed.node(broker_id).send(signal.SIGCONT)
        self._paused.discard(broker_id)

    def isolate(self, broker_id: int, fault: WantedFault) -> None:
        """Partition nothing: scenarios that do are not played."""
        raise AssertionError(f"broker {broker_id}: {fault}")

    def heal(self, broker_id: int) -> None:
        """Heal nothing, likewise."""
        raise AssertionError(f"broker {broker_id} was not partitioned")

    def sync(self, broker_id: int, at: TopicPartition) -> None:
        """Note how long its log is: Apache Kafka can't be asked to flush, so a power loss is played by hand on both."""
        [directory] = self._mixed.brokers[broker_id].directories
        self._synced |= {path: path.stat().st_size for path in (directory / str(at)).glob("*.log")}

    def drop_unsynced(self, broker_id: int) -> None:
        """Take from a dead broker's logs of the scenario's topics the records since ``sync``, or all of them."""
        [directory] = self._mixed.brokers[broker_id].directories
        for topic in self._topics:
            for path in directory.glob(f"{topic}-*/*.log"):
                with path.open("r+b") as file:
                    file.truncate(self._synced.get(path, 0))

    def responds(self, broker_id: int) -> bool:
        """Whether its process lives and is not stopped."""
        return self._mixed.node(broker_id).runs and broker_id not in self._paused


class MetadataEyes(Eyes):
    """Looks at a cluster without ZooKeeper: what the newest metadata of all brokers say counts.

    Args:
        side: the cluster.
    """

    def __init__(self, side: Side) -> None:
        super().__init__(side, None)  # type: ignore[arg-type] # all that asks ZooKeeper is below

    def partition_epoch(self, at: TopicPartition) -> int:
        """Return -1: metadata do not have it; the controllers' story compares it."""
        del at
        return -1

    def state(self, at: TopicPartition) -> tuple[int, int, tuple[int, ...]]:
        """Return a partition's leader, leader epoch and ISR by the newest metadata."""
        newest = (-1, NO_LEADER, ())
        for broker_id in self.responding:
            for topic in self.metadata(broker_id, [at.topic]).topics:
                for one in topic.partitions:
                    if one.partition_index == at.partition and one.leader_epoch >= newest[0]:
                        newest = (one.leader_epoch, one.leader_id, tuple(one.isr_nodes))
        epoch, leader, isr = newest
        return (NO_LEADER if leader < 0 else leader), epoch, isr

    def controller(self) -> tuple[int | None, int]:
        """Return a broker that forwards to the active controller, and no epoch."""
        return next(iter(self.responding), None), -1

    def registered(self) -> list[int]:
        """Return the brokers that are not fenced."""
        return sorted(one.node_id for one in self.metadata(self.responding[0]).brokers)


class KraftPlayer(Player):
    """Plays a scenario in KRaft mode.

    Args:
        scenario: the scenario to play.
        side: where; its brokers run.
        eyes: look at it.
        say: takes a line for each step.
    """

    def __init__(self, scenario: Scenario, side: Side, eyes: MetadataEyes, say: Callable[[str], None]) -> None:
        super().__init__(scenario, side, eyes, say)
        addresses = {one.id: (one.host, one.kafka_port) for one in side.cluster.file.brokers}
        self._share_side = ShareSide(eyes, addresses)
        history = side.cluster.directory / "shares.jsonl"
        self._shares = DurableSharePlayer(
            self._share_side, self._wait_until_none, scenario.partition_of, history, self._say
        )
        self._quorum = QuorumSidePlayer(side.controllers, self._wait_until_none, self._say)

    def close(self) -> None:
        """End all clients."""
        self._shares.close()
        super().close()

    def _do(self, step: Step) -> None:  # type: ignore[override] # a method that is dispatched by its argument
        if isinstance(step, QUORUM_STEPS):
            self._quorum.do(step)
            return
        if not isinstance(step, SHARE_STEPS):
            if not self._quorum.acts(step):
                super()._do(step)
            return
        self._shares.do(step)
        if isinstance(step, WaitShare | ExpectShare):
            at = self._scenario.partition_of(step)
            self._keep(self._at_rest(lambda: self._share_side.fields(step.group, at)))

    def _wait_controller(self, brokers: Sequence[int], epoch: int | None) -> None:
        """Wait for nothing: brokers are no controllers."""


def played(scenario: Scenario, side: Side) -> Player:
    """Play a scenario on a side that is not started, and take it down; return its player."""
    with side:
        side.begin()
        player = KraftPlayer(scenario, side, MetadataEyes(side), lambda text: _note(f"{side.name:9} {text}"))
        with closing(player):
            try:
                player.play()
            except (AssertionError, OSError, StepFailed, TidegaugeError) as problem:
                player.unlike_the_file.append(f"{player.moment}: it did not come to its end: {problem}")
        return player


def _note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def compared(scenario: Scenario, directory: Path, classpath: str) -> rules.Verdict:
    """Play a scenario on both sides at once, and compare."""
    sides = [Side(scenario, directory / f"{scenario.name}-{kind}", kind, classpath) for kind in (KAFKA, OURS)]
    with ThreadPoolExecutor(len(sides)) as pool:
        theirs, ours = [one.result() for one in [pool.submit(played, scenario, side) for side in sides]]
    verdict = rules.compared(theirs.moments, ours.moments)
    for name, player in (("Kafka", theirs), ("Tidegauge", ours)):
        verdict.differences += [f"{name} and the file: {problem}" for problem in player.unlike_the_file]
    return verdict


def main(arguments: Sequence[str]) -> int:
    """Play, compare, print; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios; none: all that can be played")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave data and logs of both sides in this directory")
    options = parser.parse_args(arguments)
    try:
        classpath = kafka_classpath()
    except Unavailable as reason:
        print(f"Apache Kafka can't be had here ({reason}): failures are not compared")
        return 0
    scenarios = [load(name) for name in options.names or shipped_names()]
    total, count = rules.Verdict(), 0
    with tempfile.TemporaryDirectory(prefix="differential-failures-kraft-") as directory:
        for scenario in scenarios:
            if reason := rules.why_not_in_kraft(scenario):
                print(f"{scenario.name}: not played; {reason}")
                continue
            verdict = compared(scenario.in_kraft(1), options.keep or Path(directory), classpath)
            print(f"{scenario.name}: {verdict.compared} fields, {len(verdict.differences)} differ", flush=True)
            total.add(verdict)
            count += 1
    return rules.report(total, count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
