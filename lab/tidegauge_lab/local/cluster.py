"""``LocalCluster``: ZooKeeper and brokers as separate processes on 127.0.0.1, and the faults that are done to them.

Rules:
- Each method returns when its effect is complete, not when it has begun; each has a limit (``TimeLimitError``).
- Repeating a change is no error; an impossible one (an unknown broker, a pause of a dead broker) is refused before
  anything is done.
- The state is in the directory, not in this object: any number of commands may work on one cluster, one after the other
  per process (``locks``).

Synchronous: it is used by commands and tests, whose next step depends on the effect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.actions import ZOOKEEPER, Target
from tidegauge.partition import TopicPartition
from tidegauge_client.cluster_file import FILE_NAME, BootstrapServers, BrokerEntry, ClusterFile, load_cluster_file
from tidegauge_lab.ended_membership import EndedMembership
from tidegauge_lab.local import (
    containment,
    foreign,
    layout,
    locks,
    noted_faults,
    ports,
    quorum_growth,
    roles,
    snapshots,
    startup,
    takedown,
)
from tidegauge_lab.local import launcher as launching
from tidegauge_lab.local import process_faults as faults
from tidegauge_lab.local.broker_settings import check_settings, with_whole_paths
from tidegauge_lab.local.plan import first_plan, next_plan, ports_of
from tidegauge_lab.local.process_faults import Outcome
from tidegauge_lab.local.processes import LabProcess, ProcessState
from tidegauge_lab.local.roles import GROUP, Coordinated, CoordinatedKind, Role, RoleKind
from tidegauge_lab.local.storage_errors import reporting_storage
from tidegauge_lab.local.topology import Topology, topology_of
from tidegauge_lab.local.wanted import Wanted, WantedQuorum

if TYPE_CHECKING:
    from tidegauge_client.quorum_admin import QuorumView
    from tidegauge_lab.observation import Observation

UP_LIMIT_SECONDS = 120.0
LOCK_LIMIT_SECONDS = 90.0
__all__ = ["ZOOKEEPER", "LocalCluster", "Outcome", "Target"]


class LocalCluster:
    """A cluster in a directory.

    Args:
        directory: the directory, holding ``cluster.json``.

    Raises:
        TidegaugeError: there is no cluster in the directory.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory).absolute()
        self.file: ClusterFile = load_cluster_file(self.directory)
        self.notes: list[str] = []

    @classmethod
    def create(
        cls,
        directory: Path,
        brokers: int | None = None,
        profile: str | None = None,
        settings: Mapping[str, str] | None = None,
        zookeeper: str | None = None,
        base_port: int | None = None,
        zookeeper_port: int | None = None,
        kafka_port: int | None = None,
        kafka_host: str | None = None,
        mode: str | None = None,
        quorum: WantedQuorum | None = None,
    ) -> LocalCluster:
        """Write ``cluster.json``, or what may change in it, without starting anything.

        None means: as it is in the directory; in a new one 3 brokers, profile ``fast``, a ZooKeeper of its own, gRPC
        ports from 19092 on, and ports for Kafka clients from 9092 on. In KRaft mode (``mode``, or TIDEGAUGE_MODE for a
        new directory) three controllers take ZooKeeper's place. ``notes`` tell what a user should know, such as other
        ports.

        Raises:
            TidegaugeError: a wrong setting, a busy port, a host that no process here can listen on, a contradiction to
                what the directory holds, a directory that can't be written; for a new one, no Java or PySpark, or no
                ZooKeeper at the given address. Nothing is written.
        """
        if kafka_host is not None:
            kafka_host = kafka_host.strip("[]")
            ports.require_host(kafka_host, option="--kafka-host")
        paths = with_whole_paths(settings or {})
        quorum = quorum or WantedQuorum()
        wanted = Wanted(
            brokers, profile, paths, zookeeper, base_port, zookeeper_port, kafka_port, kafka_host, mode, quorum
        )
        directory = Path(directory).absolute()
        with ports.Reservations().choosing(directory) as reserved:
            recorded = load_cluster_file(directory) if (directory / FILE_NAME).exists() else None
            if recorded is None:
                layout.require_new(directory)
                plan = first_plan(directory, wanted, taken=reserved.others)
            else:
                containment.require_own(directory, recorded)
                plan = next_plan(directory, recorded, wanted, taken=reserved.others)
            reserved.choose(ports_of(plan.file), ports.KEPT if recorded else ports.OTHERS)
            if recorded is None:
                topology_of(directory, plan.file).require_installed()
            layout.write(directory, plan.file)
        cluster = cls(directory)
        cluster.notes = plan.notes
        return cluster

    @property
    def bootstrap_servers(self) -> BootstrapServers:
        """Addresses of all brokers, whether they run or not, and how to speak with them."""
        return self.file.bootstrap_servers

    @property
    def kafka_bootstrap_servers(self) -> list[str]:
        """Addresses of all brokers for Kafka clients, whether they run or not."""
        return self.file.kafka_bootstrap_servers

    @property
    def logs(self) -> Path:
        """The directory of log files and event logs."""
        return self.directory / layout.LOGS

    # Whole cluster

    def up(self, limit_seconds: float = UP_LIMIT_SECONDS, *, controller: int | None = None) -> list[str]:
        """Start the processes that are down, and wait until the cluster is ready. Paused processes stay so.

        A restore that was interrupted is finished or undone first; ``notes`` say so. When the start fails, what this
        call started is ended again; logs and data stay.

        Args:
            limit_seconds: for all of it.
            controller: broker that is to be the controller, if no broker is up: it has a head start before the
                others, which else race for it; None: all start together.

        Returns:
            Names of the processes that were started.

        Raises:
            TidegaugeError: a port or directory is another's, something is missing, a process ended, a restore fails.
            TimeLimitError: it is not ready in time.
        """
        with self._alone():
            check_settings(self.file.settings, self.file.profile, self.file.mode)
            self._settle_restore()
            topology, processes = self._topology, self.processes()
            down = [target for target, process in processes.items() if process.state is ProcessState.DOWN]
            beside = [target for target in topology.targets if target in down]
            broker_ids = [broker_id for broker_id in self.file.broker_ids if broker_id in down]
            started: list[LabProcess] = []
            try:
                ports.Reservations().hold(self.directory, ports_of(self.file))
                topology.require_directories(down)
                topology.require_ports(down)
                startup.require_ports(self.file, broker_ids)
                has_controllers = self.file.quorum is not None and bool(beside)
                first = launching.CONTROLLER if has_controllers else launching.BROKER
                with launching.Launcher(self.directory, wanted=bool(broker_ids), first=first) as launcher:
                    started.extend(processes[target] for target in beside)
                    topology.start(beside, launcher)
                    launcher.load(launching.BROKER)
                    if self.file.quorum is None:
                        launcher.load(launching.ZOOKEEPER)
                    self.notes.extend(topology.remarks())
                    topology.require_ready(broker_ids)
                    places = {broker_id: processes[broker_id].log_size() for broker_id in broker_ids}
                    is_first = self.file.quorum is None and len(broker_ids) == len(self.file.brokers)
                    leads = controller if is_first else None
                    for broker_id in sorted(broker_ids, key=lambda one: one != leads):
                        started.append(processes[broker_id])
                        broker = self.file.broker(broker_id)
                        startup.start_broker(self.directory, self.file, broker, launcher=launcher)
                        if broker_id == leads:
                            startup.give_head_start(self.directory, broker, places[broker_id])
                self._wait_ready(limit_seconds, places)
            except BaseException:
                takedown.end(list(reversed(started)), grace_seconds=0)
                if not layout.runs(self.directory):
                    ports.Reservations().release(self.directory)
                raise
        return [process.name for process in started]

    def down(
        self, *, purge: bool = False, grace_seconds: float = takedown.GRACE_SECONDS, is_held: bool = False
    ) -> None:
        """End everything: paused processes are resumed, brokers stop, then ZooKeeper; remaining processes are killed.

        Args:
            purge: delete the data too.
            grace_seconds: how long brokers, and then ZooKeeper, may take to stop by themselves.
            is_held: whether the caller holds the directory against other commands already.

        Raises:
            TidegaugeError: a broker that the lab did not start runs on the data to be deleted; nothing was done.
        """
        with contextlib.nullcontext() if is_held else self._alone():
            if purge:
                foreign.require_none(self.directory, self.file)
            takedown.end([layout.control_process(self.directory)], grace_seconds=grace_seconds)
            self._end_all(grace_seconds, forget=True)
            ports.Reservations().release(self.directory)
            noted_faults.forget(self.directory)
            (layout.control_process(self.directory).directory / layout.BASELINE_FILE).unlink(missing_ok=True)
            if purge:
                layout.remove_cluster(self.directory)

    def wait_ready(self, timeout: float = UP_LIMIT_SECONDS) -> None:
        """Wait until all brokers that are up see each other and a controller; ``timeout`` in seconds.

        Raises:
            TidegaugeError: a broker ended.
            TimeLimitError: the cluster is not ready in time.
        """
        self._wait_ready(timeout, {})

    def status(self) -> dict[str, Any]:
        """Return the cluster as ``tidegauge status -o json`` shows it."""
        from tidegauge_lab.local.cluster_status import status_of  # noqa: PLC0415 - only what asks brokers needs gRPC

        return status_of(self.directory, self.file, self._topology, self._views)

    def quorum(self) -> QuorumView | None:
        """Return the quorum as its leader describes it; None: there is no leader.

        Raises:
            TidegaugeError: INVALID_REQUEST, the cluster is in ZooKeeper mode.
        """
        return self._topology.quorum()

    def kafka_brokers(self) -> dict[int, str]:
        """Return the client addresses of a mixed cluster's Apache Kafka brokers, by id."""
        from tidegauge_lab.observation import kafka_brokers, metadata_in  # noqa: PLC0415 - the same

        return kafka_brokers(metadata_in(self._views(self._up_ids())))

    def snapshot(self, name: str) -> None:
        """Copy the data of brokers and ZooKeeper under a name; the cluster stops in order for it, and is up afterwards.

        Raises:
            TidegaugeError: INVALID_REQUEST, it is no name, or ZooKeeper is another's. KAFKA_STORAGE_ERROR, the copy
                can't be written, and the cluster is up. Or a process does not start.
            TimeLimitError: the cluster is not ready again in time.
        """
        snapshots.directory_of(self.directory, name)
        self._topology.require_own()
        self._while_down(takedown.GRACE_SECONDS, lambda: snapshots.take(self.directory, self.file, name))

    def restore(self, name: str) -> None:
        """Replace the data by a snapshot's; the cluster is up afterwards.

        Its processes are killed: what they have not written is lost with the rest.

        Raises:
            TidegaugeError: there is no such snapshot. KAFKA_STORAGE_ERROR, the copy can't be written, and the cluster
                is up with the data that it had, or it can't be put in place, and the cluster is down. Or a process does
                not start.
            TimeLimitError: the cluster is not ready in time.
        """
        self._topology.require_own()
        snapshots.directory_of(self.directory, name)
        with self._alone(), reporting_storage(self.directory, "nothing was done"):
            snapshots.settle_names(self.directory)
        snapshots.require(self.directory, self.file, name)
        self._while_down(0, lambda: snapshots.put_back(self.directory, self.file, name))

    def _while_down(self, grace_seconds: float, copy: Callable[[], None]) -> None:
        """End all processes, copy, and start them again, also when the copy fails.

        Raises:
            TidegaugeError: KAFKA_STORAGE_ERROR, the copy failed; the cluster is up.
        """
        failure: TidegaugeError | None = None
        with self._alone():
            foreign.require_none(self.directory, self.file)
            self._settle_restore()
            self._end_all(grace_seconds)
            try:
                with reporting_storage(self.directory, "the data are as they were, and the cluster is up again"):
                    snapshots.settle_names(self.directory)
                    copy()
            except TidegaugeError as problem:
                if snapshots.interrupted(self.directory) is not None:
                    raise
                failure = problem
        self.up()
        if failure is not None:
            raise failure

    def _settle_restore(self) -> None:
        """Finish or undo a restore that was interrupted; whatever runs is ended for it.

        Raises:
            TidegaugeError: KAFKA_STORAGE_ERROR, another's broker runs on the data, or they can't be replaced.
        """
        if snapshots.interrupted(self.directory) is not None:
            foreign.require_none(self.directory, self.file)
            self._end_all(0)
            self.notes.append(snapshots.settle(self.directory))

    def _end_all(self, grace_seconds: float, *, forget: bool = False) -> None:
        """End all brokers, controllers last, then the processes beside them, each group within its grace."""
        topology, quorum = self._topology, self.file.quorum
        topology.resume()
        voters = [] if quorum is None else quorum.ids
        for group in ([one for one in self.file.broker_ids if (one in voters) is last] for last in (False, True)):
            takedown.end([self.process_of(one) for one in group], grace_seconds=grace_seconds, forget=forget)
        beside = [self.process_of(target) for target in reversed(topology.targets)]
        takedown.end(beside, grace_seconds=min(grace_seconds, topology.grace_seconds), forget=forget)

    def add_controller(self) -> tuple[int, bytes]:
        """Start one more controller in KRaft mode, and make it a voter; return its id and directory id.

        Raises:
            TidegaugeError: the controllers are brokers, or there is no leader, or the new one can't start or catch up.
        """
        with self._alone():
            entry = quorum_growth.planned(self.directory, self.file, self._topology)
            self.file = load_cluster_file(self.directory)
            self._topology.start([entry.id])
            return entry.id, quorum_growth.make_voter(self.directory, entry)

    def change_brokers(self, brokers: Sequence[BrokerEntry], changed: Sequence[int]) -> None:
        """Record the brokers, and restart those that have changed and run, in order, on their data.

        Raises:
            TidegaugeError: one does not start.
            TimeLimitError: one does not stop or become ready in time.
        """
        with self._alone():
            replace(self.file, brokers=list(brokers)).save(self.directory)
        self.file = load_cluster_file(self.directory)
        running = [broker_id for broker_id in changed if self.state_of(broker_id) is not ProcessState.DOWN]
        self.stop(*running)
        self.start(*running)
        self.wait_ready()

    # Faults

    def kill(self, *targets: Target, expire: bool = False) -> list[Outcome]:
        """SIGKILL; returns when the processes have ended.

        Args:
            targets: broker ids, ``zookeeper``.
            expire: whether the brokers' memberships of the cluster are ended too.

        Raises:
            TidegaugeError: a membership that is to end is not known, or what keeps it does not serve; nothing was done.
        """
        with self._together(targets, ProcessState.UP) as processes:
            self._topology.require_members(list(processes) if expire else ())
            outcomes = faults.kill(processes, self.logs)
            return faults.expired(self._topology, outcomes) if expire else outcomes

    def stop(self, *targets: Target, limit_seconds: float = faults.STOP_LIMIT_SECONDS) -> list[Outcome]:
        """Stop processes by a controlled shutdown; return when they have ended. Paused ones are resumed for it.

        Raises:
            TimeLimitError: they do not end in time; they may still end.
        """
        with self._together(targets, ProcessState.UP) as processes:
            return faults.stop(self.directory, processes, limit_seconds)

    def pause(self, *targets: Target, expire: bool = False) -> list[Outcome]:
        """SIGSTOP; returns when every thread stands still.

        Args:
            targets: broker ids, ``zookeeper``.
            expire: whether the brokers' memberships of the cluster are ended too, as by a pause that outlasts them.

        Raises:
            TidegaugeError: one is down, or a membership that is to end can't be ended; nothing was done.
        """
        with self._together(targets, ProcessState.UP) as processes:
            self._topology.require_members(list(processes) if expire else ())
            outcomes = faults.pause(processes, self.logs)
            return faults.expired(self._topology, outcomes) if expire else outcomes

    def expire_session(self, broker_id: int) -> EndedMembership:
        """End the membership of a broker, whether it is up, paused or down.

        Raises:
            TidegaugeError: it is not known, or what keeps it does not serve.
        """
        with self._together((broker_id,)):
            self._topology.require_members([broker_id])
            return self._topology.end_membership(broker_id)

    def resume(self, *targets: Target) -> list[Outcome]:
        """SIGCONT; returns when the processes run again.

        Raises:
            TidegaugeError: one of them is down; nothing was done.
        """
        with self._together(targets, ProcessState.PAUSED) as processes:
            return faults.resume(processes, self.logs)

    def start(
        self,
        *targets: Target,
        limit_seconds: float = faults.START_LIMIT_SECONDS,
        held: Sequence[TopicPartition] = (),
        after_power_cut: bool = False,
    ) -> list[Outcome]:
        """Start on the old data and port; returns when each broker is ready: registered, with metadata and roles.

        Args:
            targets: broker ids, ``zookeeper``.
            limit_seconds: for all of them.
            held: partitions whose followers there are held from the start.
            after_power_cut: what a broker never flushed is lost first.

        Raises:
            TidegaugeError: one is paused, its port is busy, there is no ZooKeeper, or it ended. One is up that was to
                start held or after a power loss. Or a restore was interrupted.
            TimeLimitError: not ready in time; it may still become so.
        """
        start_with = faults.StartWith(tuple(held), after_power_cut)
        containment.require_own(self.directory, self.file, with_data=True)
        check_settings(self.file.settings, self.file.profile, self.file.mode)
        with self._together(targets, ProcessState.DOWN) as processes:
            snapshots.require_settled(self.directory)
            return faults.start(self.directory, self.file, processes, limit_seconds, start_with)

    def cut_power(self, broker_id: int) -> int:
        """Remove unflushed data from the disk of a broker that is down; return the number of bytes.

        Raises:
            TidegaugeError: it runs, or it has no record of flushed lengths.
        """
        with self._together((broker_id,)) as processes:
            return faults.cut_power(self.directory, processes[broker_id])

    def resolve(self, role: Role, fits: ProcessState | None = None) -> int:
        """Return the broker that has the role now.

        Args:
            role: what it is to be.
            fits: of several followers the first in this state is meant, if there is one.

        Raises:
            TidegaugeError: no broker has it, or an Apache Kafka broker, whose process is not the lab's.
        """
        from tidegauge_lab.local.role_holders import holder_of  # noqa: PLC0415 - only what asks brokers needs gRPC

        alive = [broker.id for broker in self.file.brokers if self.state_of(broker.id) is not ProcessState.DOWN]
        quorum = None if self.file.quorum is None else self.quorum
        views = self._views(self._up_ids(), role.topics)
        return holder_of(role, views, alive, quorum, lambda node_id: self._state_if_known(node_id) is fits)

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the broker that leads the partition now.

        Raises:
            TidegaugeError: there is no leader.
        """
        return self.resolve(Role(RoleKind.LEADER, TopicPartition(topic, partition)))

    def coordinator_of(self, key: str, kind: CoordinatedKind = GROUP) -> int:
        """Return the broker that coordinates a consumer group, or a transactional id, now.

        Raises:
            TidegaugeError: there is none.
        """
        return self.resolve(Role(RoleKind.COORDINATOR, of=Coordinated(kind, key)))

    def state_of(self, target: Target) -> ProcessState:
        """Up, down or paused."""
        return self.process_of(target).state

    def pid_of(self, target: Target) -> int | None:
        """Return the pid while the process runs or is paused."""
        return self.process_of(target).pid

    # Inside

    def process_of(self, target: Target) -> LabProcess:
        """Return the process of a node by its id, or ZooKeeper's.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, there is no such node; INVALID_REQUEST, ZooKeeper is another's, or the
                cluster has none.
        """
        if isinstance(target, int) and (target in self.file.broker_ids or self.file.quorum is None):
            return layout.broker_process(self.directory, self.file.broker(target).id)
        return self._topology.process(target)

    @property
    def _topology(self) -> Topology:
        return topology_of(self.directory, self.file)

    def processes(self) -> dict[Target, LabProcess]:
        """Return all processes that ``up`` starts, by their targets."""
        targets = [*self.file.broker_ids, *self._topology.targets]
        return {target: self.process_of(target) for target in targets}

    def _up_ids(self) -> list[int]:
        return [broker.id for broker in self.file.brokers if self.state_of(broker.id) is ProcessState.UP]

    def _state_if_known(self, node_id: int) -> ProcessState | None:
        with contextlib.suppress(TidegaugeError):  # another cluster member's, such as Apache Kafka's
            return self.state_of(node_id)
        return None

    def _entries(self, broker_ids: list[int]) -> list[BrokerEntry]:
        return [self.file.broker(broker_id) for broker_id in broker_ids]

    def _views(self, broker_ids: list[int], topics: list[str] | None = None) -> dict[int, Observation]:
        if not broker_ids:
            return {}
        from tidegauge_lab.observation import BlockingObserver  # noqa: PLC0415 - only what asks brokers

        addresses = {broker.id: broker.address for broker in self._entries(broker_ids)}
        with BlockingObserver(addresses, self.file.security) as brokers:
            return brokers.readiness(topics or ())

    def _wait_ready(self, limit_seconds: float, log_places: Mapping[int, int]) -> None:
        up = self._up_ids()
        expected = {*up, *log_places}
        startup.wait_brokers(
            self.directory,
            self._entries(sorted(expected)),
            startup.all_ready(expected, names_controller=self._topology.names_controller),
            limit_seconds,
            log_places,
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the directory against every other command."""
        containment.require_own(self.directory, self.file, with_data=True)
        with locks.hold(self.directory / locks.CLUSTER_LOCK, LOCK_LIMIT_SECONDS):
            self.file = load_cluster_file(self.directory)
            yield

    def _named(self, target: Target, fits: ProcessState | None = None) -> Target:
        """Return the target with a role resolved now; others are returned unchanged.

        Raises:
            TidegaugeError: INVALID_REQUEST, the text names no role; or no broker has it.
        """
        if isinstance(target, int) or target == ZOOKEEPER:
            return target
        try:
            role = roles.read_role(target)
        except ValueError as problem:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, str(problem)) from None
        if role is None:
            known = f"it is a broker's id, {ZOOKEEPER}, {roles.ROLE_WORDS}"
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{target!r} is no target: {known}")
        return self.resolve(role, fits)

    def broker_of(self, target: Target) -> int:
        """Return the broker of an id or of a role now.

        Raises:
            TidegaugeError: INVALID_REQUEST, it names no broker; or no broker has the role.
        """
        found = self._named(target)
        if isinstance(found, int):
            return found
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "ZooKeeper is no broker; name one by its id or its role")

    @contextlib.contextmanager
    def _together(
        self, targets: tuple[Target, ...], fits: ProcessState | None = None
    ) -> Iterator[dict[Target, LabProcess]]:
        """Hold these processes; other faults may work on others meanwhile. ``fits`` is as in ``resolve``."""
        containment.require_own(self.directory, self.file)
        named = dict.fromkeys(self._named(target, fits) for target in targets)
        processes = {target: self.process_of(target) for target in named}
        with contextlib.ExitStack() as stack:
            stack.enter_context(locks.hold(self.directory / locks.CLUSTER_LOCK, LOCK_LIMIT_SECONDS, shared=True))
            # In one order everywhere, so that two commands can't wait for each other.
            for process in sorted(processes.values(), key=lambda process: process.name):
                stack.enter_context(locks.hold(process.directory / locks.CLUSTER_LOCK, LOCK_LIMIT_SECONDS))
            yield processes
