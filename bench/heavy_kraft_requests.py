"""Large requests of KRaft mode, for ``heavy_requests``: share groups, groups of KIP-848, the quorum, admin requests.

Each is well formed, of a size that a frame may have, and asks for something about very many names or ranges. Admin
requests, which the controller decides, are here too; access control lists count where the cluster has an
authorizer, else they are refused.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from tidegauge.kafka import apis
from tidegauge.kafka.kraft.apis import ADD_RAFT_VOTER, DESCRIBE_QUORUM
from tidegauge.kafka.kraft.messages.add_raft_voter import AddRaftVoterRequest, Listener
from tidegauge.kafka.kraft.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tidegauge.kafka.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    elect_leaders,
    incremental_alter_configs,
    initialize_share_group_state,
    read_share_group_state,
    share_acknowledge,
    share_fetch,
    write_share_group_state,
)
from tidegauge.kafka.messages.find_coordinator import FindCoordinatorRequest
from tidegauge.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tidegauge.kafka.topic_ids import topic_id_text

MANY = 99_000
HALF = 49_000
"""Of items that have one item each: a message may have 100,000."""
STORED = 9_900
SHARE_PARTITIONS = 20_000
_SHARE, _GROUP = 2, 0
Ask = Callable[[int, int, Any], None]
Work = dict[str, Callable[[], Any]]


def prepare(ask: Ask, topic_id: bytes) -> None:
    """Create the coordinators' topics, and the share state that ``work`` writes to.

    Args:
        ask: sends a request (key, version, message) and reads its response.
        topic_id: of a topic that exists.
    """
    key = f"heavy:{topic_id_text(topic_id)}:0"
    ask(apis.FIND_COORDINATOR, 6, FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=["heavy"]))
    ask(apis.FIND_COORDINATOR, 6, FindCoordinatorRequest(key_type=_SHARE, coordinator_keys=[key]))
    time.sleep(3)
    part = initialize_share_group_state.PartitionData(0, 0, 0)
    topics = [initialize_share_group_state.InitializeStateData(topic_id, [part])]
    initialize = initialize_share_group_state.InitializeShareGroupStateRequest("heavy", topics)
    ask(apis.INITIALIZE_SHARE_GROUP_STATE, 0, initialize)


def work(ask: Ask, topic_id: bytes, wide_id: Callable[[], bytes]) -> Work:
    """Return what does each request, by the request's name.

    Args:
        ask: sends a request (key, version, message) and reads its response.
        topic_id: of a topic that exists.
        wide_id: returns the id of a topic with many partitions, which may be created later.
    """
    parts = (_states(ask, topic_id), _groups(ask), _fetches(ask, wide_id), _quorum(ask), _admin(ask), _described(ask))
    return {name: do for part in parts for name, do in part.items()}


def _states(ask: Ask, topic_id: bytes) -> Work:
    def write(first: int, step: int, count: int = MANY) -> Callable[[], Any]:
        module = write_share_group_state
        batches = [module.StateBatch(one, one, one % 2 * 2, 1) for one in range(first, first + step * count, step)]
        part = module.PartitionData(0, 0, 0, 0, -1, batches)
        request = module.WriteShareGroupStateRequest("heavy", [module.WriteStateData(topic_id, [part])])
        return lambda: ask(apis.WRITE_SHARE_GROUP_STATE, 1, request)

    part = read_share_group_state.PartitionData(0, 0)
    topics = [read_share_group_state.ReadStateData(topic_id, [part])]
    read = read_share_group_state.ReadShareGroupStateRequest("heavy", topics)
    return {
        f"WriteShareGroupState, {MANY} batches": write(0, 1),
        "WriteShareGroupState, 40,000 batches": write(0, 3, 40_000),
        "the same between the former": write(1, 3, 40_000),
        "ReadShareGroupState of them": lambda: ask(apis.READ_SHARE_GROUP_STATE, 0, read),
    }


def _groups(ask: Ask) -> Work:
    names = [f"topic-{one}" for one in range(MANY)]
    owned = [consumer_group_heartbeat.TopicPartitions(one.to_bytes(16, "big"), [0]) for one in range(1, HALF)]
    joining = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "heavy-consumers",
        topic_id_text(uuid.uuid4().bytes),
        0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=names,
    )
    joining.topic_partitions = []
    keeping = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "heavy-consumers", topic_id_text(uuid.uuid4().bytes), 1
    )
    keeping.topic_partitions = owned
    sharing = ShareGroupHeartbeatRequest("heavy-shares", topic_id_text(uuid.uuid4().bytes), 0, None, names)
    return {
        f"ShareGroupHeartbeat, {MANY} names": lambda: ask(apis.SHARE_GROUP_HEARTBEAT, 1, sharing),
        f"ConsumerGroupHeartbeat, {MANY} names": lambda: ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, joining),
        f"ConsumerGroupHeartbeat, {HALF} topics owned": lambda: ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, keeping),
    }


def _fetches(ask: Ask, wide_id: Callable[[], bytes]) -> Work:
    fetched = [share_fetch.FetchPartition(one) for one in range(SHARE_PARTITIONS)]
    acknowledged = [
        share_acknowledge.AcknowledgePartition(one, [share_acknowledge.AcknowledgementBatch(0, 0, [1])])
        for one in range(SHARE_PARTITIONS)
    ]
    of_it = {"max_wait_ms": 0, "min_bytes": 0, "max_records": 500, "batch_size": 500}
    member = {"group_id": "heavy-shares", "member_id": topic_id_text(uuid.uuid4().bytes)}

    def fetch(epoch: int, **more: Any) -> None:
        ask(apis.SHARE_FETCH, 2, share_fetch.ShareFetchRequest(**member, **of_it, share_session_epoch=epoch, **more))

    def acknowledge() -> None:
        topics = [share_acknowledge.AcknowledgeTopic(wide_id(), acknowledged)]
        request = share_acknowledge.ShareAcknowledgeRequest(**member, share_session_epoch=2, topics=topics)
        ask(apis.SHARE_ACKNOWLEDGE, 2, request)

    def forget() -> None:
        fetch(3, forgotten_topics_data=[share_fetch.ForgottenTopic(wide_id(), range(SHARE_PARTITIONS))])

    return {
        f"ShareFetch that opens {SHARE_PARTITIONS} partitions": lambda: fetch(
            0, topics=[share_fetch.FetchTopic(wide_id(), fetched)]
        ),
        "the next ShareFetch": lambda: fetch(1),
        "ShareAcknowledge of them": acknowledge,
        "ShareFetch that forgets them": forget,
    }


def _quorum(ask: Ask) -> Work:
    topics = DescribeQuorumRequest([TopicData(f"t{one}", [PartitionData(0)]) for one in range(HALF)])
    partitions = DescribeQuorumRequest([TopicData("t", [PartitionData(one) for one in range(MANY)])])
    listeners = [Listener(f"L{one}", "127.0.0.1", 9) for one in range(MANY)]
    voter = AddRaftVoterRequest("another cluster", 1000, 9, bytes(16), listeners)
    return {
        f"DescribeQuorum, {HALF} topics": lambda: ask(DESCRIBE_QUORUM, 2, topics),
        f"DescribeQuorum, {MANY} partitions": lambda: ask(DESCRIBE_QUORUM, 2, partitions),
        f"AddRaftVoter, {MANY} listeners": lambda: ask(ADD_RAFT_VOTER, 0, voter),
    }


def _admin(ask: Ask) -> Work:
    names = [f"no-{one}" for one in range(MANY)]
    requests: dict[str, tuple[int, int, Any]] = {
        f"CreateAcls, {MANY} entries": (
            apis.CREATE_ACLS,
            3,
            create_acls.CreateAclsRequest([create_acls.AclCreation(2, name, 3, "User:a", "*", 3, 3) for name in names]),
        ),
        f"DeleteAcls, {MANY} filters": (
            apis.DELETE_ACLS,
            3,
            delete_acls.DeleteAclsRequest(
                [delete_acls.DeleteAclsFilter(2, name, 3, None, None, 1, 1) for name in names]
            ),
        ),
        f"AlterClientQuotas, {MANY // 3} entities": (apis.ALTER_CLIENT_QUOTAS, 1, _quotas(names[: MANY // 3])),
        f"IncrementalAlterConfigs, {HALF} topics": (apis.INCREMENTAL_ALTER_CONFIGS, 1, _configs(names[:HALF])),
        f"CreatePartitions, {MANY} topics": (
            apis.CREATE_PARTITIONS,
            3,
            create_partitions.CreatePartitionsRequest(
                [create_partitions.CreatePartitionsTopic(name, 2, None) for name in names], 60_000
            ),
        ),
        f"DeleteTopics, {MANY} topics": (
            apis.DELETE_TOPICS,
            5,
            delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=60_000),
        ),
        f"ElectLeaders, {MANY} partitions": (
            apis.ELECT_LEADERS,
            2,
            elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions("no", range(MANY))], 60_000),
        ),
        f"AlterPartitionReassignments, {HALF} partitions": (
            apis.ALTER_PARTITION_REASSIGNMENTS,
            0,
            _reassignments(),
        ),
    }

    return _asking(ask, requests)


def _described(ask: Ask) -> Work:
    """Return requests that store access lists and quotas, and describe them.

    A decision that would write more than 10,000 records is refused (POLICY_VIOLATION), so they come in portions.
    """
    portions = [range(first, first + STORED) for first in range(0, 4 * STORED, STORED)]
    acls = [
        create_acls.CreateAclsRequest([create_acls.AclCreation(2, f"t{one}", 3, "User:a", "*", 3, 3) for one in part])
        for part in portions
    ]
    quotas = [_quotas([f"user-{one}" for one in part]) for part in portions]
    topics = [describe_configs.DescribeConfigsResource(2, f"no-{one}", None) for one in range(HALF)]
    every = describe_client_quotas.ComponentData("user", 2, None)
    requests: dict[str, tuple[int, int, Any]] = {
        **{f"CreateAcls, {STORED} more, {at}": (apis.CREATE_ACLS, 3, one) for at, one in enumerate(acls, 1)},
        **{
            f"AlterClientQuotas, {STORED} more, {at}": (apis.ALTER_CLIENT_QUOTAS, 1, one)
            for at, one in enumerate(quotas, 1)
        },
        "DescribeAcls of all": (apis.DESCRIBE_ACLS, 3, describe_acls.DescribeAclsRequest(2, None, 1, None, None, 1, 1)),
        "DescribeAcls of one principal": (
            apis.DESCRIBE_ACLS,
            3,
            describe_acls.DescribeAclsRequest(1, None, 1, "User:b", None, 1, 1),
        ),
        "DescribeClientQuotas of all": (
            apis.DESCRIBE_CLIENT_QUOTAS,
            1,
            describe_client_quotas.DescribeClientQuotasRequest([every], False),
        ),
        f"DescribeConfigs, {HALF} topics": (
            apis.DESCRIBE_CONFIGS,
            4,
            describe_configs.DescribeConfigsRequest(topics, True, True),
        ),
    }
    return _asking(ask, requests)


def _asking(ask: Ask, requests: dict[str, tuple[int, int, Any]]) -> Work:
    """Return what sends each request and reads its response."""

    def asked(key: int, version: int, message: Any) -> Callable[[], Any]:
        return lambda: ask(key, version, message)

    return {name: asked(*request) for name, request in requests.items()}


def _quotas(users: list[str]) -> Any:
    module = alter_client_quotas
    values = [module.OpData("producer_byte_rate", 1000.0, False)]
    return module.AlterClientQuotasRequest(
        [module.EntryData([module.EntityData("user", one)], values) for one in users]
    )


def _configs(topics: list[str]) -> Any:
    module = incremental_alter_configs
    values = [module.AlterableConfig("retention.ms", 0, "5")]
    return module.IncrementalAlterConfigsRequest([module.AlterConfigsResource(2, one, values) for one in topics])


def _reassignments() -> Any:
    module = alter_partition_reassignments
    partitions = [module.ReassignablePartition(one, [1]) for one in range(HALF)]
    return module.AlterPartitionReassignmentsRequest(topics=[module.ReassignableTopic("no", partitions)])
