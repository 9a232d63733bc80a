"""Gathers a check's evidence from the cluster in a directory: its processes, brokers, files and event logs.

Brokers whose processes are frozen or dead are not asked; their files count all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_client.cluster_file import ClusterFile, load_cluster_file
from tidegauge_lab.labs.evidence import Evidence, Group, Member, StoredRecord
from tidegauge_lab.labs.kafka_addresses import Advertised, advertised
from tidegauge_lab.local import layout
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.observation import Observation, Observer, controller_of, metadata_in, newest_states
from tidegauge_lab.scenario.facts import Facts, replica_of
from tidegauge_lab.scenario.files_on_disk import stored_records
from tidegauge_lab.scenario.readers import NO_LEADER
from tidegauge_lab.timeline.reading import Timeline


def gather(directory: Path) -> Evidence:
    """Return the present state of the cluster in a directory, and its events.

    Raises:
        TidegaugeError: there is no cluster.
    """
    file = load_cluster_file(directory)
    states = {one.id: layout.broker_process(directory, one.id).state for one in file.brokers}
    up = [broker for broker, state in states.items() if state is ProcessState.UP]
    seen, clients = asyncio.run(_ask_all(file, up))
    partitions = dict(_partitions(seen))
    alive = [broker for broker, state in states.items() if state is not ProcessState.DOWN]
    controller = controller_of(seen, alive)
    timeline = Timeline(directory / layout.LOGS)
    try:
        events = list(timeline.written())
    finally:
        timeline.close()
    return Evidence(
        events=events,
        processes={broker: state.value for broker, state in states.items()},
        partitions=partitions,
        records={
            (at, broker): _records(directory, broker, at)
            for at, facts in partitions.items()
            for broker in facts.assigned
            if not at.topic.startswith("__")
        },
        controller=controller.broker,
        controller_epoch=-1 if controller.epoch is None else controller.epoch,
        groups=dict(_groups(seen)),
        held=_held(seen),
        kafka_addresses=clients.addresses,
        kafka_reachable=clients.reachable,
    )


async def _ask_all(file: ClusterFile, up: list[int]) -> tuple[dict[int, Observation], Advertised]:
    """Ask the brokers for their state, and for the addresses that they give Kafka clients."""
    return await asyncio.gather(_ask(file, up), advertised(file, up))


async def _ask(file: ClusterFile, up: list[int]) -> dict[int, Observation]:
    observer = Observer.of({one.id: one.address for one in file.brokers}, has_switches=True, security=file.security)
    try:
        return await observer.ask(up, with_groups=True)
    finally:
        await observer.close()


def _partitions(seen: Mapping[int, Observation]) -> Iterable[tuple[TopicPartition, Facts]]:
    for at, state in newest_states(metadata_in(seen)).items():
        said = {broker: one.replica(at) for broker, one in seen.items()}
        yield (
            at,
            Facts(
                leader=NO_LEADER if state.leader_id is None else state.leader_id,
                epoch=state.leader_epoch,
                isr=state.isr,
                replicas={broker: replica_of(one) for broker, one in said.items() if one is not None},
                logs={},
                assigned=state.replicas,
            ),
        )


def _held(seen: Mapping[int, Observation]) -> dict[TopicPartition, frozenset[int]]:
    found: dict[TopicPartition, set[int]] = {}
    for broker, one in seen.items():
        for at in one.held:
            found.setdefault(at, set()).add(broker)
    return {at: frozenset(brokers) for at, brokers in found.items()}


def _records(directory: Path, broker: int, at: TopicPartition) -> tuple[StoredRecord, ...]:
    return tuple(
        StoredRecord(one.offset, _text(one.key), _text(one.value), one.leader_epoch)
        for one in stored_records(directory, broker, at)
    )


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", errors="replace")


def _groups(seen: Mapping[int, Observation]) -> Iterable[tuple[str, Group]]:
    for broker, one in seen.items():
        for group in one.groups or ():
            yield group.group_id, _group(group, broker)


def _group(observed: lab_pb2.ObservedGroup, coordinator: int) -> Group:
    said = observed.description
    members = tuple(Member(member.client_id, member.group_instance_id) for member in said.members)
    committed = {TopicPartition(one.topic, one.partition): one.offset for one in observed.offsets}
    return Group(said.state, said.generation, members, committed, coordinator)
