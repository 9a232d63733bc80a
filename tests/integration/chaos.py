"""Faults of every kind for the soaks and for the matrix of faults and workloads: each by a name, begun and ended.

One at a time, and after it every replica is waited for, so that one whole copy is always there: then nothing that was
acknowledged with acks=all may ever be lost, whatever the fault was. See docs/chaos.md.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from click import Command
from click.testing import CliRunner
from tests.integration.chaos_truth import Truth, truth_of
from tests.modes import IS_KRAFT
from tests.waiting import until

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.cli.elect_leaders import elect_leaders
from tidegauge_client.cli.reassign_partitions import reassign_partitions
from tidegauge_client.cli.wait import wait
from tidegauge_client.quorum_admin import METADATA_TOPIC
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster
from tidegauge_lab.local.layout import broker_data, broker_log_directories
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.roles import Coordinated, CoordinatedKind, Role, RoleKind
from tidegauge_lab.switches import Direction, Plane, Switches

BROKERS = (0, 1, 2)
LIMIT_S = 90
CALM_S = 1.0
"""For so long nothing may change after a fault before the next one."""
SLOW = {"delay_ms": 100}
LOSSY = {"drop": 0.3, "seed": 1}
IN, OUT, BOTH = Direction.IN, Direction.OUT, Direction.BOTH
METADATA = Plane.CONTROLLERS if IS_KRAFT else Plane.ZOOKEEPER
"""Where a broker has its metadata from."""


def with_two_directories(cluster: LocalCluster) -> LocalCluster:
    """Give each broker of a cluster that has not started yet a second log directory."""
    for broker in cluster.file.brokers:
        (broker_data(cluster.directory, broker.id).parent / "data-2").mkdir(parents=True, exist_ok=True)
    return cluster


class Chaos:
    """A cluster under faults.

    Args:
        cluster: three brokers, and a ZooKeeper of its own.
        topics: the topics under load; the first one's partition 0 says who leader and follower are.
        seed: of the random choices.
        client_dies: called when a client shall die; None if no client of this run may.
        without: faults that chance does not choose.
        faults: what there is to choose from; None: ``FAULTS``.
        coordinated: a group and a transactional id, of which ``coordinator`` finds the coordinator.
        client_pauses: called when a client shall pause and return.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        topics: Sequence[str],
        seed: int,
        client_dies: Callable[[], None] | None = None,
        without: Collection[str] = (),
        faults: Mapping[str, Callable[[Chaos], None]] | None = None,
        coordinated: Mapping[CoordinatedKind, str] = MappingProxyType({}),
        client_pauses: Callable[[], None] | None = None,
    ) -> None:
        self.faults = FAULTS if faults is None else faults
        self._names = sorted(set(self.faults) - set(without))
        self._coordinated = coordinated
        self._client_pauses = client_pauses
        self.cluster = cluster
        self.topics = topics
        self.random = random.Random(seed)
        self.done: list[str] = []
        self.client_dies = client_dies
        self._began = time.monotonic()

    def one_fault(self, name: str | None = None) -> None:
        """Begin and end a fault, by default any; then wait until every replica is in sync."""
        name = name or self.random.choice(self._names)
        self.done.append(name)
        print(f"{time.monotonic() - self._began:8.1f} s: {name}", flush=True)
        self.faults[name](self)
        self.heal()

    def heal(self) -> None:
        """All brokers up, and all replicas in sync, to stay so: a session's end has consequences some time later."""
        until(lambda: all(self.cluster.state_of(one) is ProcessState.UP for one in BROKERS))
        with truth_of(self.cluster) as truth:
            until(lambda: self._stays_in_sync(truth), LIMIT_S, "all replicas in sync, and no further change")

    def _stays_in_sync(self, truth: Truth) -> bool:
        for topic in self.topics:
            self.wait("--in-sync", topic)
        before, end = truth.all_of(self.topics), time.monotonic() + CALM_S
        until(lambda: time.monotonic() > end)
        return before == truth.all_of(self.topics)

    # Targets

    def leader(self) -> int:
        return self._waited_for(lambda: self.cluster.leader_of(self.topics[0], 0))

    def follower(self) -> int:
        leader = self.leader()
        return next(broker for broker in self._replicas(self.topics[0], 0) if broker != leader)

    def controller(self) -> int:
        return self._waited_for(lambda: self.cluster.resolve(Role(RoleKind.CONTROLLER)))

    def coordinator(self, kind: CoordinatedKind) -> int:
        role = Role(RoleKind.COORDINATOR, of=Coordinated(kind, self._coordinated[kind]))
        return self._waited_for(lambda: self.cluster.resolve(role))

    def _waited_for(self, find: Callable[[], int]) -> int:
        found: list[int] = []

        def is_there() -> bool:
            try:
                found.append(find())
            except TidegaugeError:
                return False
            return True

        until(is_there, LIMIT_S)
        return found[0]

    def _replicas(self, topic: str, partition: int) -> Sequence[int]:
        with SyncAdmin(self.cluster.bootstrap_servers) as admin:
            (info,) = admin.describe_topics([topic])
            return info.partitions[partition].replicas

    # How it is done

    def verb(self, verb: Command, *arguments: str) -> tuple[int, str]:
        reported = CliRunner().invoke(verb, [*arguments, "--dir", str(self.cluster.directory)], catch_exceptions=False)
        return reported.exit_code, reported.output

    def wait(self, *condition: str) -> None:
        code, output = self.verb(wait, *condition, "--timeout-ms", str(LIMIT_S * 1000))
        assert code == 0, (self.done, output)

    def for_a_while(self) -> None:
        """Between half a second and three: now and then long enough for the ISR to shrink or a session to end."""
        end = time.monotonic() + self.random.choice([0.5, 1.5, 3.0, 6.0])
        until(lambda: time.monotonic() > end)

    def maybe_until_out(self, broker: int) -> None:
        """Half the time until others lead what it led."""
        if self.random.random() < 0.5:
            self._until_out(broker)

    def _until_out(self, broker: int) -> None:
        """Until its copy is in no ISR, or is the only one in it, which it stays whatever happens."""
        with truth_of(self.cluster) as truth:
            until(lambda: broker not in (isr := truth.isr(self.topics[0])) or isr == [broker], LIMIT_S)

    def switched(self, change: Callable[[Switches], Coroutine[Any, Any, Any]]) -> None:
        """Have brokers do something, once more from the beginning if one had no time to respond.

        All that is done so may be done twice. A machine that stands still for seconds is one of the world's troubles.
        """

        async def work() -> None:
            async with Switches.of_cluster(self.cluster.file) as switches:
                await change(switches)

        def is_done() -> bool:
            try:
                asyncio.run(work())
            except TidegaugeError as error:
                if error.code not in {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}:
                    raise
                return False
            return True

        until(is_done, LIMIT_S)

    def switched_for_a_while(
        self, brokers: Sequence[int], change: Callable[[Switches, int], Coroutine[Any, Any, Any]]
    ) -> None:
        """A fault inside these brokers, ended after a while."""

        async def begin(switches: Switches) -> None:
            for broker in brokers:
                await change(switches, broker)

        async def end(switches: Switches) -> None:
            for broker in brokers:
                await switches.clear(broker)

        self.switched(begin)
        self.for_a_while()
        self.switched(end)

    # Processes

    def kill(self, *brokers: int, power_cut: bool = False) -> None:
        self.cluster.kill(*brokers)
        if len(brokers) == 1:
            self.maybe_until_out(brokers[0])
        for broker in brokers:
            self.cluster.start(broker, after_power_cut=power_cut)

    def kill_twice(self) -> None:
        """A leader, and then, as soon as all are in sync again, who leads now."""
        for _ in range(2):
            self.kill(self.leader())
            self.heal()

    def stop(self, broker: int) -> None:
        self.cluster.stop(broker)
        self.cluster.start(broker)

    def pause(self, broker: int) -> None:
        self.cluster.pause(broker)
        self.maybe_until_out(broker)
        self.cluster.resume(broker)

    def pause_all(self) -> None:
        self.cluster.pause(*BROKERS)
        self.for_a_while()
        self.cluster.resume(*BROKERS)

    def kill_client(self) -> None:
        if self.client_dies is not None:
            self.client_dies()

    def pause_client(self) -> None:
        if self._client_pauses is not None:
            self._client_pauses()

    # Connections

    def cut(
        self,
        broker: int,
        ends: Plane | Sequence[int],
        direction: Direction = BOTH,
        effect: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.switched_for_a_while([broker], lambda switches, one: switches.isolate(one, ends, direction, **effect))

    def cut_clients_from_all(self) -> None:
        self.switched_for_a_while(BROKERS, lambda switches, one: switches.isolate(one, Plane.CLIENTS, IN))

    def zombie(self, broker: int) -> None:
        """It is partitioned from all but its clients, until another leads what it led."""

        async def begin(switches: Switches) -> None:
            await switches.isolate(broker, Plane.BROKERS)
            await switches.isolate(broker, METADATA)

        self.switched(begin)
        self._until_out(broker)
        self.for_a_while()
        self.switched(lambda switches: switches.clear(broker))

    def expire(self, *brokers: int) -> None:
        for broker in brokers:
            self.switched(lambda switches: switches.expire_session(broker))  # noqa: B023  (called at once)

    # Calls and disks

    def fail_calls(self, broker: int, rpc: str, *, after_effect: bool = False) -> None:
        # A status, which is tried again. An error of Kafka's to LeaderAndIsr is not: the controller, as Kafka's, lets
        # that replica be until something else happens, so nothing would heal.
        injected = {"grpc_status": "UNAVAILABLE", "after_effect": after_effect, "times": 3}
        self.switched_for_a_while([broker], lambda switches, one: switches.inject_error(one, rpc, **injected))

    def slow_disk(self, broker: int, operation: str) -> None:
        slow = {"delay_ms": 50, "operation": operation}
        self.switched_for_a_while([broker], lambda switches, one: switches.inject_disk(one, **slow))

    def fail_disk(self, broker: int, errno_name: str) -> None:
        """Every append fails; a broker halts with its last log directory, and is started again on a sound disk."""
        self.switched(lambda switches: switches.inject_disk(broker, errno=errno_name, operation="append"))
        until(lambda: self.cluster.state_of(broker) is ProcessState.DOWN, LIMIT_S)
        self.maybe_until_out(broker)
        self.cluster.start(broker)

    def home_of(self, broker: int) -> Path:
        """The log directory that holds the broker's replica of the first topic's partition 0."""
        found = [
            path
            for path in broker_log_directories(self.cluster.directory, broker)
            if (path / f"{self.topics[0]}-0").is_dir()
        ]
        assert len(found) == 1, found
        return found[0]

    def fail_directory(self, broker: int, errno_name: str) -> None:
        """Appends in one of the broker's log directories fail; what lies in the other goes on, and so does the broker.

        The failed directory stays offline until the broker restarts (LogDirFailureHandler). In KRaft mode the broker
        ends if the directory has its metadata log, too (ReplicaManager.handleLogDirFailure).
        """
        home = f"{self.home_of(broker)}/"
        is_of_metadata = Path(home, f"{METADATA_TOPIC}-0").is_dir()
        self.switched(lambda switches: switches.inject_disk(broker, errno=errno_name, operation="append", path=home))
        if is_of_metadata:
            until(lambda: self.cluster.state_of(broker) is ProcessState.DOWN, LIMIT_S)
            self.maybe_until_out(broker)
            self.cluster.start(broker)
            return
        self._until_out(broker)
        self.for_a_while()
        assert self.cluster.state_of(broker) is ProcessState.UP
        self.switched(lambda switches: switches.clear(broker))
        self.cluster.kill(broker)
        self.cluster.start(broker)

    def damage_a_batch(self) -> None:
        """A batch that a paused follower lacks gets a wrong length in the running leader's file, then its own again.

        In the first byte of the length the damage stops the leader's reads, in the last one the follower finds it by
        the CRC. Only this partition may stand still meanwhile, and the damage is not taken for the log's end.
        """
        leader, follower = self.leader(), self.follower()
        directory = self.home_of(leader) / f"{self.topics[0]}-0"
        self.cluster.pause(follower)
        begin = max(directory.glob("*.log")).stat().st_size
        until(lambda: max(directory.glob("*.log")).stat().st_size > begin + 2_000, LIMIT_S, "the leader appends")
        segment = max(directory.glob("*.log"))
        damaged = _first_batch_from(segment, begin) + _LENGTH_POSITION + self.random.choice([0, 3])
        _flip(segment, damaged)
        self.cluster.resume(follower)
        self.for_a_while()
        assert self.cluster.state_of(leader) is ProcessState.UP
        _flip(segment, damaged)

    # Where the metadata are

    def _keepers(self) -> Sequence[int | str]:
        return sorted(self.cluster.file.unsecured_ids) or [ZOOKEEPER]

    def kill_keepers(self) -> None:
        """ZooKeeper, or all controllers of a quorum."""
        self.cluster.kill(*self._keepers())
        self.for_a_while()
        self.cluster.start(*self._keepers())
        self.cluster.wait_ready()

    def pause_keepers(self) -> None:
        self.cluster.pause(*self._keepers())
        self.for_a_while()
        self.cluster.resume(*self._keepers())
        self.cluster.wait_ready()

    def kill_a_majority(self) -> None:
        """Two controllers of three: no decision until one is back."""
        lost = self._keepers()[:2]
        self.cluster.kill(*lost)
        self.for_a_while()
        self.cluster.start(*lost)
        self.cluster.wait_ready()

    # Leaders and replicas

    def elect(self) -> None:
        """Leadership moves with a death and is given back."""
        self.cluster.kill(self.leader())
        self.cluster.up()
        self.heal()
        self._elected()

    def _elected(self) -> None:
        code, output = self.verb(elect_leaders, "--election-type", "preferred", "--all-topic-partitions")
        assert code == 0, output

    def leaders_take_turns(self) -> None:
        """Replicas in another order, and an election: three times, until they have their first order."""
        for _ in range(len(BROKERS)):
            self.move(lambda replicas: [*replicas[1:], replicas[0]])
            self._elected()

    def replicas_go_and_return(self) -> None:
        """A follower loses its copy of everything, and makes it again."""
        before = {topic: self._assignment(topic) for topic in self.topics}
        self.move(lambda replicas: replicas[:-1] if len(replicas) > 2 else replicas)
        self._reassign(before)

    def move(self, new: Callable[[list[int]], list[int]]) -> None:
        self._reassign({topic: [new(replicas) for replicas in self._assignment(topic)] for topic in self.topics})

    def _assignment(self, topic: str) -> list[list[int]]:
        with SyncAdmin(self.cluster.bootstrap_servers) as admin:
            (info,) = admin.describe_topics([topic])
            return [list(info.partitions[number].replicas) for number in sorted(info.partitions)]

    def _reassign(self, wanted: dict[str, list[list[int]]]) -> None:
        partitions = [
            {"topic": topic, "partition": number, "replicas": replicas}
            for topic, assignment in wanted.items()
            for number, replicas in enumerate(assignment)
        ]
        path = Path(self.cluster.directory) / "logs" / "chaos-reassignment.json"
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        code, output = self.verb(reassign_partitions, "--reassignment-json-file", str(path), "--execute")
        assert code == 0, output
        until(lambda: all(self._assignment(topic) == wanted[topic] for topic in wanted), LIMIT_S, "replicas move")
        until(lambda: not asyncio.run(self._reassignments()), LIMIT_S, "the reassignment ends")

    async def _reassignments(self) -> Collection[TopicPartition]:
        async with Admin(self.cluster.bootstrap_servers) as admin:
            return await admin.list_partition_reassignments()


_LENGTH_POSITION = 8
"""Position of a batch's length: behind its base offset of eight bytes."""


def _first_batch_from(segment: Path, position: int) -> int:
    """Return the first batch's position at or behind a position in a segment."""
    data = segment.read_bytes()
    at = 0
    while at < position:
        at += 12 + int.from_bytes(data[at + _LENGTH_POSITION : at + 12], "big")
    return at


def _flip(path: Path, position: int) -> None:
    """Flip one bit of a byte in a file that another process may be writing."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


DAMAGE = "a batch in the leader's log is damaged"
EVERYWHERE: dict[str, Callable[[Chaos], None]] = {
    "kill the leader": lambda chaos: chaos.kill(chaos.leader()),
    "kill a follower": lambda chaos: chaos.kill(chaos.follower()),
    "kill the controller": lambda chaos: chaos.kill(chaos.controller()),
    "kill leader after leader": lambda chaos: chaos.kill_twice(),
    "kill all": lambda chaos: chaos.kill(*BROKERS),
    "kill a client": lambda chaos: chaos.kill_client(),
    "stop the leader": lambda chaos: chaos.stop(chaos.leader()),
    "stop a follower": lambda chaos: chaos.stop(chaos.follower()),
    "stop the controller": lambda chaos: chaos.stop(chaos.controller()),
    "power cut of the leader": lambda chaos: chaos.kill(chaos.leader(), power_cut=True),
    "power cut of a follower": lambda chaos: chaos.kill(chaos.follower(), power_cut=True),
    "power cut of the controller": lambda chaos: chaos.kill(chaos.controller(), power_cut=True),
    "pause the leader": lambda chaos: chaos.pause(chaos.leader()),
    "pause a follower": lambda chaos: chaos.pause(chaos.follower()),
    "pause the controller": lambda chaos: chaos.pause(chaos.controller()),
    "pause all": lambda chaos: chaos.pause_all(),
    "cut the leader from brokers": lambda chaos: chaos.cut(chaos.leader(), Plane.BROKERS),
    "cut the leader from brokers, in": lambda chaos: chaos.cut(chaos.leader(), Plane.BROKERS, IN),
    "cut the leader from brokers, out": lambda chaos: chaos.cut(chaos.leader(), Plane.BROKERS, OUT),
    "cut the leader from one follower": lambda chaos: chaos.cut(chaos.leader(), [chaos.follower()]),
    "cut a follower from brokers": lambda chaos: chaos.cut(chaos.follower(), Plane.BROKERS),
    "cut the controller from brokers": lambda chaos: chaos.cut(chaos.controller(), Plane.BROKERS),
    "slow between the leader and brokers": lambda chaos: chaos.cut(chaos.leader(), Plane.BROKERS, BOTH, SLOW),
    "slow between a follower and brokers": lambda chaos: chaos.cut(chaos.follower(), Plane.BROKERS, BOTH, SLOW),
    "losses between the leader and brokers": lambda chaos: chaos.cut(chaos.leader(), Plane.BROKERS, BOTH, LOSSY),
    "losses between a follower and brokers": lambda chaos: chaos.cut(chaos.follower(), Plane.BROKERS, BOTH, LOSSY),
    "cut the leader from clients": lambda chaos: chaos.cut(chaos.leader(), Plane.CLIENTS, IN),
    "cut all from clients": lambda chaos: chaos.cut_clients_from_all(),
    "slow between the leader and clients": lambda chaos: chaos.cut(chaos.leader(), Plane.CLIENTS, IN, SLOW),
    "losses between the leader and clients": lambda chaos: chaos.cut(chaos.leader(), Plane.CLIENTS, IN, LOSSY),
    "a zombie leader with its clients": lambda chaos: chaos.zombie(chaos.leader()),
    "expire the leader's session": lambda chaos: chaos.expire(chaos.leader()),
    "produces fail": lambda chaos: chaos.fail_calls(chaos.leader(), "ProduceStream"),
    "answers to produces get lost": lambda chaos: chaos.fail_calls(chaos.leader(), "ProduceStream", after_effect=True),
    "replicas' fetches fail": lambda chaos: chaos.fail_calls(chaos.leader(), "ReplicaFetch"),
    "appends of the leader are slow": lambda chaos: chaos.slow_disk(chaos.leader(), "append"),
    "appends of a follower are slow": lambda chaos: chaos.slow_disk(chaos.follower(), "append"),
    "syncs of the leader are slow": lambda chaos: chaos.slow_disk(chaos.leader(), "sync"),
    "the leader's disk fails": lambda chaos: chaos.fail_disk(chaos.leader(), "EIO"),
    "a follower's disk fails": lambda chaos: chaos.fail_disk(chaos.follower(), "EIO"),
    "the leader's disk is full": lambda chaos: chaos.fail_disk(chaos.leader(), "ENOSPC"),
    "one of the leader's directories fails": lambda chaos: chaos.fail_directory(chaos.leader(), "EIO"),
    "one of the leader's directories is full": lambda chaos: chaos.fail_directory(chaos.leader(), "ENOSPC"),
    "one of a follower's directories is full": lambda chaos: chaos.fail_directory(chaos.follower(), "ENOSPC"),
    DAMAGE: lambda chaos: chaos.damage_a_batch(),
    "leaders die and lead again": lambda chaos: chaos.elect(),
    "leaders take turns": lambda chaos: chaos.leaders_take_turns(),
    "replicas go and return": lambda chaos: chaos.replicas_go_and_return(),
}
"""In both modes; the session of a leader in KRaft mode is what its heartbeats keep, and its end fences it."""
IN_ZOOKEEPER_MODE: dict[str, Callable[[Chaos], None]] = {
    "cut the leader from ZooKeeper": lambda chaos: chaos.cut(chaos.leader(), Plane.ZOOKEEPER),
    "cut the leader from ZooKeeper, in": lambda chaos: chaos.cut(chaos.leader(), Plane.ZOOKEEPER, IN),
    "cut the leader from ZooKeeper, out": lambda chaos: chaos.cut(chaos.leader(), Plane.ZOOKEEPER, OUT),
    "cut a follower from ZooKeeper": lambda chaos: chaos.cut(chaos.follower(), Plane.ZOOKEEPER),
    "cut the controller from ZooKeeper": lambda chaos: chaos.cut(chaos.controller(), Plane.ZOOKEEPER),
    "expire the controller's session": lambda chaos: chaos.expire(chaos.controller()),
    "expire all sessions": lambda chaos: chaos.expire(*BROKERS),
    "kill ZooKeeper": lambda chaos: chaos.kill_keepers(),
    "pause ZooKeeper": lambda chaos: chaos.pause_keepers(),
    "orders of the controller fail": lambda chaos: chaos.fail_calls(chaos.follower(), "LeaderAndIsr"),
}
IN_KRAFT_MODE: dict[str, Callable[[Chaos], None]] = {
    # Controllers make no calls to a broker, so that there is no partition of these alone.
    "cut the leader from controllers": lambda chaos: chaos.cut(chaos.leader(), Plane.CONTROLLERS),
    "cut the leader from controllers, out": lambda chaos: chaos.cut(chaos.leader(), Plane.CONTROLLERS, OUT),
    "cut a follower from controllers": lambda chaos: chaos.cut(chaos.follower(), Plane.CONTROLLERS),
    "cut the controller from controllers": lambda chaos: chaos.cut(chaos.controller(), Plane.CONTROLLERS),
    "cut the controller from controllers, in": lambda chaos: chaos.cut(chaos.controller(), Plane.CONTROLLERS, IN),
    "cut the controller from controllers, out": lambda chaos: chaos.cut(chaos.controller(), Plane.CONTROLLERS, OUT),
    "slow between controllers": lambda chaos: chaos.cut(chaos.controller(), Plane.CONTROLLERS, BOTH, SLOW),
    "losses between controllers": lambda chaos: chaos.cut(chaos.controller(), Plane.CONTROLLERS, BOTH, LOSSY),
    "syncs of the controller are slow": lambda chaos: chaos.slow_disk(chaos.controller(), "sync"),
    "kill a majority of controllers": lambda chaos: chaos.kill_a_majority(),
    "kill all controllers": lambda chaos: chaos.kill_keepers(),
    "pause all controllers": lambda chaos: chaos.pause_keepers(),
}
FAULTS = EVERYWHERE | (IN_KRAFT_MODE if IS_KRAFT else IN_ZOOKEEPER_MODE)
"""Those of the mode that the tests run in."""
