"""Share groups of a scenario on either cluster, looked at over Kafka's protocol alone.

Members are the scenario player's own (``ShareMember``): connections that fetch and acknowledge when a step
says so. No response of Kafka's protocol has the records in flight at a leader; the durable state is read from the share
coordinator (ReadShareGroupState, KIP-932), and that is compared.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import closing
from typing import Any, TypeVar

from differential_failures_look import Eyes
from tests.wire_responses.probe import Peer

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge.kafka.messages import (
    alter_share_group_offsets,
    describe_configs,
    find_coordinator,
    incremental_alter_configs,
    metadata,
    read_share_group_state,
    read_share_group_state_summary,
    share_group_describe,
)
from tidegauge.partition import TopicPartition
from tidegauge_client.loop_thread import LoopThread
from tidegauge_client.share_member import ShareMember
from tidegauge_client.share_views import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, KeptShare, Records
from tidegauge_lab.scenario import share_steps as steps
from tidegauge_lab.scenario.share_player import SharePlayer, durable_differences

Result = TypeVar("Result")

STATE = TopicPartition("__share_group_state", 0)
"""The partition of all states: scenarios give the topic one partition."""
STATES = {0: AVAILABLE, 1: ACQUIRED, 2: ACKNOWLEDGED, 4: ARCHIVED}
GROUP_RESOURCE, GROUP_KEY, SET = 32, 0, 0
METADATA_VERSION, COORDINATOR_VERSION, ALTER_CONFIGS_VERSION, DESCRIBE_CONFIGS_VERSION = 12, 4, 1, 4
DESCRIBE_VERSION, READ_VERSION, SUMMARY_VERSION, ALTER_VERSION = 1, 0, 1, 0
CONFIG_SECONDS = 60.0


class ShareSide:
    """A cluster's share groups (``share_player.ShareHands``).

    Args:
        eyes: ask its brokers.
        addresses: of the brokers, by id.
    """

    def __init__(self, eyes: Eyes, addresses: Mapping[int, tuple[str, int]]) -> None:
        self._eyes, self._addresses = eyes, addresses
        self._loop = LoopThread("share members")

    def _ask(self, broker_id: int, version: int, request: Any) -> Any:
        """Ask a broker; TidegaugeError if it does not respond."""
        try:
            with closing(Peer(*self._addresses[broker_id], protocol=KRAFT_BROKER_PROTOCOL)) as peer:
                response = peer.ask(version, request, 30.0)
        except OSError as problem:
            raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id}: {problem}") from None
        if isinstance(response, str):
            raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id}: {response}")
        return response

    # Questions of the player

    def new_member(self, group: str, name: str, at: TopicPartition) -> ShareMember:
        """Return a member that has done nothing yet."""
        return ShareMember(self._servers, group, name, at)

    def _servers(self) -> list[str]:
        return [f"{host}:{port}" for host, port in map(self._addresses.__getitem__, self._eyes.responding)]

    def begun(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin what members do."""
        return self._loop.submit(work)

    def set_group_config(self, group: str, config: dict[str, str]) -> None:
        """Set settings of a group, and wait until every broker describes them."""
        entries = [incremental_alter_configs.AlterableConfig(name, SET, value) for name, value in config.items()]
        resource = incremental_alter_configs.AlterConfigsResource(GROUP_RESOURCE, group, entries)
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
        [done] = self._ask(self._eyes.responding[0], ALTER_CONFIGS_VERSION, request).responses
        _refuse(done.error_code, f"the settings of {group}")
        end = time.monotonic() + CONFIG_SECONDS
        while not all(config.items() <= self._config(one, group).items() for one in self._eyes.responding):
            assert time.monotonic() < end, f"{config} of {group} are not in force"
            time.sleep(0.1)

    def _config(self, broker_id: int, group: str) -> dict[str, str]:
        resource = describe_configs.DescribeConfigsResource(GROUP_RESOURCE, group, None)
        request = describe_configs.DescribeConfigsRequest([resource])
        [found] = self._ask(broker_id, DESCRIBE_CONFIGS_VERSION, request).results
        return {one.name: one.value for one in found.configs or ()}

    def begin_share_group(self, group: str, at: TopicPartition, offset: int) -> ErrorCode:
        """Alter the offset of a share group; gives the error."""
        partition = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(at.partition, offset)
        topic = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(at.topic, [partition])
        request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(group, [topic])
        end = time.monotonic() + CONFIG_SECONDS
        while True:
            code = self._altered(group, request)
            if code not in _PASSING or time.monotonic() > end:
                return code
            time.sleep(0.2)

    def _altered(self, group: str, request: Any) -> ErrorCode:
        try:
            response = self._ask(self._coordinator(group), ALTER_VERSION, request)
        except TidegaugeError as problem:
            return problem.code
        codes = [response.error_code, *(one.error_code for topic in response.responses for one in topic.partitions)]
        return next((ErrorCode.of(code) for code in codes if code), ErrorCode.NONE)

    def look_at_share(self, group: str, at: TopicPartition) -> Any:
        """Look at nothing of a leader: ``kept`` has the durable state."""
        raise AssertionError(f"{group} at {at}")

    # Compared fields

    def _coordinator(self, group: str) -> int:
        request = find_coordinator.FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[group])
        [found] = self._ask(self._eyes.responding[0], COORDINATOR_VERSION, request).coordinators
        _refuse(found.error_code, f"the coordinator of {group}")
        return int(found.node_id)

    def _topic_id(self, topic: str) -> bytes:
        request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)])
        [found] = self._ask(self._eyes.responding[0], METADATA_VERSION, request).topics
        return bytes(found.topic_id)

    def kept(self, group: str, at: TopicPartition) -> KeptShare:
        """Return the durable state of a share partition.

        It is read as the leader would in the epoch that the share coordinator knows, so nothing changes by it.

        Raises:
            TidegaugeError: the share coordinator does not respond, or keeps no state of it.
        """
        coordinator, topic_id = self._eyes.state(STATE)[0], self._topic_id(at.topic)
        partition = read_share_group_state_summary.PartitionData(at.partition, -1)
        topic = read_share_group_state_summary.ReadStateSummaryData(topic_id, [partition])
        asked = read_share_group_state_summary.ReadShareGroupStateSummaryRequest(group, [topic])
        summary = self._ask(coordinator, SUMMARY_VERSION, asked).results[0].partitions[0]
        _refuse(summary.error_code, f"the state of {group}")
        reading = read_share_group_state.PartitionData(at.partition, summary.leader_epoch)
        wanted = read_share_group_state.ReadStateData(topic_id, [reading])
        request = read_share_group_state.ReadShareGroupStateRequest(group, [wanted])
        state = self._ask(coordinator, READ_VERSION, request).results[0].partitions[0]
        _refuse(state.error_code, f"the state of {group}")
        batches = (
            Records(one.first_offset, one.last_offset, STATES[one.delivery_state], one.delivery_count)
            for one in state.state_batches
        )
        return KeptShare(
            group,
            at,
            STATE.partition,
            state.state_epoch,
            summary.leader_epoch,
            state.start_offset,
            summary.delivery_complete_count,
            tuple(batches),
        )

    def fields(self, group: str, at: TopicPartition) -> dict[str, str]:
        """Return all that is compared of a share partition and its group."""
        kept = self.kept(group, at)
        request = share_group_describe.ShareGroupDescribeRequest([group])
        [found] = self._ask(self._coordinator(group), DESCRIBE_VERSION, request).groups
        batches = [f"{one.first_offset}-{one.last_offset} {one.state} x{one.delivery_count}" for one in kept.records]
        members = sorted(
            f"{one.member_id}: {[(of.topic_name, *of.partitions) for of in one.assignment.topic_partitions]}"
            for one in found.members
        )
        return {
            "durable start offset": str(kept.start_offset),
            "durable state epoch": str(kept.state_epoch),
            "durable leader epoch": str(kept.leader_epoch),
            "delivery complete count": str(kept.complete_count),
            "durable records": ", ".join(batches),
            "share group": f"{found.group_state}, error {found.error_code}, by {found.assignor_name}",
            "members": "; ".join(members),
        }


class DurableSharePlayer(SharePlayer):
    """Plays steps of share groups if records in flight can't be seen: it checks only durable state."""

    def _differing(self, step: steps.ShareState) -> list[str]:
        side: Any = self._connections
        try:
            kept = side.kept(step.group, self._partition_of(step))
        except TidegaugeError as problem:
            return [str(problem)]
        return durable_differences(step, kept)


_PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a coordinator that has just begun or moves."""


def _refuse(code: int, what: str) -> None:
    if code:
        raise TidegaugeError(ErrorCode.of(code), what)
