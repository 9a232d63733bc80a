"""Plays the steps of a scenario that wait for what replicas, brokers and the controller show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import singledispatchmethod
from typing import Any

from tidegauge import event_log
from tidegauge.counted import counted
from tidegauge.partition import TopicPartition
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.roles import Role
from tidegauge_lab.scenario import checks
from tidegauge_lab.scenario import wait_steps as steps
from tidegauge_lab.scenario.cluster_connections import ClusterConnections
from tidegauge_lab.scenario.facts import Facts, Replica, leader_name, numbers
from tidegauge_lab.scenario.files_on_disk import checkpointed_hw
from tidegauge_lab.scenario.group_player import Waits
from tidegauge_lab.scenario.readers import NO_LEADER
from tidegauge_lab.scenario.step_base import PartitionStep, Step


class WaitPlayer:
    """The waits of one run.

    Args:
        cluster: its processes, whose event logs and checkpoint files are read.
        connections: ask the brokers.
        look: reads the facts of a partition.
        partition_of: the partition that a step is about.
        wait: the run's waits.
        ids: returns the brokers that ids and roles name now.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        connections: ClusterConnections,
        look: Callable[[TopicPartition], Facts],
        partition_of: Callable[[PartitionStep], TopicPartition],
        wait: Waits,
        ids: Callable[[Sequence[int | Role]], list[int]],
    ) -> None:
        self._cluster = cluster
        self._connections = connections
        self._look = look
        self._partition_of = partition_of
        self._wait = wait
        self._ids = ids

    @singledispatchmethod
    def do(self, step: Step) -> None:
        """Do one step.

        Raises:
            StepFailed: what it waits for has not come true in time.
        """
        raise AssertionError(f"{step.verb} is in the vocabulary, so it can be done")

    @do.register
    def _wait_leader(self, step: steps.WaitLeader) -> None:
        at = self._partition_of(step)

        def differing() -> list[str]:
            facts = self._look(at)
            if facts.leader != step.leader:
                return [f"the leader is {leader_name(facts.leader)}"]
            return [] if facts.is_led or step.leader == NO_LEADER else [checks.says_not(step.leader)]

        self._wait(differing)

    @do.register
    def _wait_isr(self, step: steps.WaitIsr) -> None:
        at = self._partition_of(step)

        def differing() -> list[str]:
            facts = self._look(at)
            if set(facts.isr) != set(step.isr):
                return [f"the ISR is {numbers(facts.isr)}"]
            return [] if facts.is_led or facts.leader == NO_LEADER else [checks.says_not(facts.leader)]

        self._wait(differing)

    @do.register
    def _wait_hw(self, step: steps.WaitHw) -> None:
        self._wait_values(self._partition_of(step), "HW", step.hw, lambda replica: replica.hw)

    @do.register
    def _wait_lso(self, step: steps.WaitLso) -> None:
        self._wait_values(self._partition_of(step), "LSO", step.lso, lambda replica: replica.lso)

    @do.register
    def _wait_leo(self, step: steps.WaitLeo) -> None:
        self._wait_values(self._partition_of(step), "LEO", step.leo, lambda replica: replica.leo)

    @do.register
    def _wait_epoch(self, step: steps.WaitEpoch) -> None:
        at = self._partition_of(step)

        def differing() -> Iterator[str]:
            facts = self._look(at)
            if facts.epoch != step.epoch:
                yield f"the leader epoch is {facts.epoch}"
            wanted = dict.fromkeys(step.brokers, step.epoch)
            yield from checks.values_differ(facts, "leader epoch", wanted, lambda replica: replica.leader_epoch)

        self._wait(lambda: list(differing()))

    @do.register
    def _wait_checkpoint(self, step: steps.WaitCheckpoint) -> None:
        at = self._partition_of(step)

        def differing() -> list[str]:
            found = {broker: checkpointed_hw(self._cluster.directory, broker, at) for broker in step.hw}
            return [
                f"the checkpoint file of broker {broker} holds {found[broker]}"
                for broker, wanted in step.hw.items()
                if found[broker] != wanted
            ]

        self._wait(differing)

    @do.register
    def _wait_controller(self, step: steps.WaitController) -> None:
        def differing() -> list[str]:
            seen = self._connections.controllers()
            agreed = set(seen.values())
            if len(agreed) == 1:
                [(controller, epoch)] = agreed
                if controller in step.brokers and epoch == (step.epoch or epoch):
                    return []
            return [
                f"broker {broker} sees controller {leader_name(controller)} of epoch {epoch}"
                for broker, (controller, epoch) in seen.items()
            ] or ["no broker responds"]

        self._wait(differing)

    @do.register
    def _wait_event(self, step: steps.WaitEvent) -> None:
        path = self._cluster.logs / event_log.file_name(f"broker-{step.broker}")
        wanted: dict[str, Any] = {"kind": step.kind, **(step.fields or {})}

        def missing() -> list[str]:
            events = list(event_log.read_events(path))
            if any(all(event.get(key) == value for key, value in wanted.items()) for event in events):
                return []
            last = [event for event in events if event.get("kind") == step.kind][-3:]
            return [f"broker {step.broker} has written no such event; the last of its kind: {last}"]

        self._wait(missing)

    @do.register
    def _wait_held(self, step: steps.WaitHeld) -> None:
        [broker_id] = self._ids([step.broker])

        def missing() -> list[str]:
            held = self._connections.held_requests(broker_id)
            if held >= step.count:
                return []
            return [f"broker {broker_id} holds {counted(held, 'request')}, not {step.count}"]

        self._wait(missing)

    def _wait_values(
        self, at: TopicPartition, name: str, wanted: Mapping[int, int], read: Callable[[Replica], int]
    ) -> None:
        self._wait(lambda: list(checks.values_differ(self._look(at), name, wanted, read)))
