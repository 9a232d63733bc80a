"""The controller around its decisions: one queue, responses at the commit, and the state after a lost leadership.

Kafka's ``QuorumController``; the decisions themselves have tests of their own (tests/unit/metadata).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.one_controller import NODE_ID, OneController, controller_at, registration, until

from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages import (
    alter_client_quotas,
    alter_partition,
    api_versions,
    create_topics,
    delete_topics,
    incremental_alter_configs,
    list_partition_reassignments,
    update_features,
)
from tidegauge.kafka.metadata_records.no_op_record import NoOpRecord
from tidegauge.kafka.metadata_records.partition_change_record import PartitionChangeRecord
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_broker.server.quorum import committed_metadata
from tidegauge_broker.server.quorum.calls import Call
from tidegauge_broker.server.quorum.controller import proposals
from tidegauge_broker.server.quorum.controller.events import WriteEvent
from tidegauge_controller.metadata.decisions.view import Decision
from tidegauge_controller.metadata.image import BROKER, MetadataImage
from tidegauge_controller.metadata.records import made
from tidegauge_controller.raft import effects, events


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[OneController]:
    async with controller_at(tmp_path) as found:
        yield found


def write(one: OneController, decide: Any) -> asyncio.Future[Any]:
    """Queue an event; the future gets its response, or its error."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    one.controller.write(
        WriteEvent("test", decide, future.set_result, lambda error, text: future.set_result((error, text)))
    )
    return future


async def test_an_empty_log_gets_the_bootstrap_records_in_one_batch(one: OneController):
    """ActivationRecordsGenerator: a transaction with the formatted levels, and min.insync.replicas for ELR."""
    image = one.controller.image
    assert image.metadata_version == 30
    assert image.features["eligible.leader.replicas.version"] == 1
    assert image.config(BROKER, "")["min.insync.replicas"] == "1"
    response = await one.ask(apis.API_VERSIONS, api_versions.ApiVersionsRequest("test", "1"))
    levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert levels["metadata.version"] == 30
    assert response.finalized_features_epoch == image.provenance.offset


async def test_api_versions_lists_exactly_what_is_served(one: OneController):
    """Brokers show clients only APIs that their controllers serve, so the list must be true in both directions."""
    response = await one.ask(apis.API_VERSIONS, api_versions.ApiVersionsRequest("test", "1"))
    listed = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert listed.keys() == one.handlers.keys()
    assert listed[apis.ALTER_PARTITION] == (2, 3)
    assert {apis.CREATE_TOPICS, apis.ENVELOPE, apis.BROKER_HEARTBEAT, apis.FETCH} <= listed.keys()


async def test_a_response_waits_until_its_records_are_committed(one: OneController):
    """ControllerWriteEvent: memory changes at once, and the next decision sees it; the response comes at the commit.

    A response without records waits too: it says something of a topic that may yet vanish.
    """
    await one.register(0)
    one.store.passes.clear()
    created, again = one.create("t"), one.create("t")
    active = one.controller.active
    assert active is not None
    await until(lambda: "t" in active.image.topic_ids)
    listed = await one.ask(
        apis.LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments.ListPartitionReassignmentsRequest()
    )
    assert listed.topics == []
    await until(lambda: len(one.controller._waiting) == 2)
    assert not created.done()
    assert not again.done()
    assert "t" not in one.controller.image.topic_ids
    one.store.passes.set()
    assert (await created).topics[0].error_code == 0
    assert (await again).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "t" in one.controller.image.topic_ids


async def test_lost_leadership_fails_what_waits_and_leaves_the_committed_image(one: OneController):
    """QuorumController.renounce: NOT_CONTROLLER to waiting and queued requests; memory equals the log again."""
    await one.register(0)
    one.store.passes.clear()
    created = one.create("t")
    active = one.controller.active
    assert active is not None
    await until(lambda: "t" in active.image.topic_ids)
    one.driver.give(events.Resign(active.epoch))
    assert (await created).topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert one.controller.active is None
    assert "t" not in one.controller.image.topic_ids
    refused = (await one.create("u")).topics[0]
    assert refused.error_code == ErrorCode.NOT_CONTROLLER
    assert refused.error_message == "No controller appears to be active."
    one.store.passes.set()
    await until(lambda: one.controller.active is not None)
    again = one.controller.active
    assert again is not None
    assert again.epoch > active.epoch
    assert again.image == one.controller.image


async def test_a_defect_in_a_decision_costs_that_request_alone(one: OneController, caplog: pytest.LogCaptureFixture):
    """UNKNOWN_SERVER_ERROR and a line in the log; nothing was proposed, and the controller goes on."""
    end = one.node.log.end_offset

    def fails(*_: object) -> Decision[None]:
        raise RuntimeError("a defect")

    error, _ = await write(one, fails)
    assert error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert one.node.log.end_offset == end
    assert "defect" in caplog.text
    assert await write(one, lambda *_: Decision([], "served")) == "served"


async def test_records_that_do_not_fit_are_never_proposed(one: OneController):
    """A record that can't be replayed would end every controller that reads it; the whole decision is dropped."""
    end = one.node.log.end_offset
    unfit = made(PartitionChangeRecord(partition_id=0, topic_id=bytes(16), leader=1), 2)
    error, _ = await write(one, lambda *_: Decision([unfit], None))
    assert error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert one.node.log.end_offset == end


async def test_a_decision_of_which_the_log_has_taken_a_part_ends_the_leadership(
    one: OneController, monkeypatch: pytest.MonkeyPatch
):
    """Memory lacks the records that were taken: the next leader, whoever it is, reads them from the log."""
    active, give = one.controller.active, one.controller.give
    assert active is not None
    proposed: list[events.Propose] = []

    def second_refused(event: events.Event) -> None:
        if isinstance(event, events.Propose):
            proposed.append(event)
            if len(proposed) == 2:
                one.controller.proposal_decided(
                    effects.NotProposed(event.token, ErrorCode.RECORD_LIST_TOO_LARGE, "too large")
                )
                return
        give(event)

    monkeypatch.setattr(proposals, "MAX_RECORDS_PER_REQUEST", 1)
    monkeypatch.setattr(one.controller, "give", second_refused)
    records = [made(NoOpRecord(), 0)] * 2
    error, _ = await write(one, lambda *_: Decision(records, None))
    assert error is ErrorCode.RECORD_LIST_TOO_LARGE
    assert one.controller.active is not active
    await until(lambda: one.controller.active is not None)


async def test_a_large_decision_is_tried_in_a_thread(one: OneController):
    """Records of many partitions would hold the event loop, and with it the responses to the other controllers."""
    await one.register(0)
    created = one.create("large", partitions=3_000)
    after = one.create("after")
    assert (await created).topics[0].error_code == 0
    assert (await after).topics[0].error_code == 0
    topic = one.controller.image.topic_named("large")
    assert topic is not None
    assert len(topic.partitions) == 3_000


async def test_a_snapshot_that_can_not_be_written_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A full disk: the controller goes on without the snapshot, says so, and writes the next one when there is room."""
    async with controller_at(tmp_path, metadata_log_max_record_bytes_between_snapshots="1500") as one:
        write_snapshot = one.store.snapshots.write

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(one.store.snapshots, "write", full)
        await one.register(0)
        await one.create("a", partitions=20)
        await until(lambda: "No space left on device" in caplog.text)
        assert one.node.log.newest_snapshot is None
        monkeypatch.setattr(one.store.snapshots, "write", write_snapshot)
        await one.create("b", partitions=20)
        await until(lambda: one.node.log.newest_snapshot is not None)
        assert one.driver.failure is None
        assert not list((tmp_path / "__cluster_metadata-0").glob("*.part"))


async def test_a_request_that_waited_too_long_is_not_decided(one: OneController):
    """QuorumController: REQUEST_TIMED_OUT after the request's own timeout; a topic must not appear later."""
    await one.register(0)
    topics = delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState("t")], timeout_ms=-1)
    assert (await one.create("t")).topics[0].error_code == 0
    assert (await one.ask(apis.DELETE_TOPICS, topics)).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "t" in one.controller.image.topic_ids


async def test_a_broker_without_heartbeats_is_fenced(tmp_path: Path):
    """KIP-631: after broker.session.timeout.ms; its partition is left without a leader, and with an eligible one."""
    async with controller_at(tmp_path, broker_session_timeout_ms="200") as one:
        epoch = await one.register(0)
        await one.create("t")
        await until(lambda: one.controller.image.brokers[0].fenced)
        state = one.controller.image.topic_named("t")
        assert state is not None
        assert (state.partitions[0].leader, state.partitions[0].elr) == (-1, (0,))
        beaten = await one.heartbeat(0, epoch)
        assert not beaten.is_fenced


async def test_preferred_leaders_are_elected_by_and_by(tmp_path: Path):
    """leader.imbalance.check.interval.seconds: the first replica leads again when it is back in the ISR."""
    rebalance = {"auto_leader_rebalance_enable": "true", "leader_imbalance_check_interval_seconds": "1"}
    async with controller_at(tmp_path, **rebalance) as one:
        epochs = {broker_id: await one.register(broker_id, incarnation=broker_id + 1) for broker_id in (0, 1)}
        await one.create("t", factor=2)
        topic = one.controller.image.topic_named("t")
        assert topic is not None
        first, second = topic.partitions[0].replicas
        await one.heartbeat(first, epochs[first], want_fence=True)
        await one.heartbeat(first, epochs[first])
        led = one.controller.image.topics[topic.topic_id].partitions[0]
        assert (led.leader, led.isr) == (second, (second,))
        members = [alter_partition.BrokerState(broker_id, epochs[broker_id]) for broker_id in (first, second)]
        data = alter_partition.PartitionData(0, led.leader_epoch, [], members, 0, led.partition_epoch)
        change = alter_partition.TopicData(topic_id_bytes(topic.topic_id), [data])
        request = alter_partition.AlterPartitionRequest(second, epochs[second], [change])
        assert (await one.ask(apis.ALTER_PARTITION, request)).topics[0].partitions[0].error_code == 0
        await until(lambda: one.controller.image.topics[topic.topic_id].partitions[0].leader == first)


async def test_a_topic_that_allows_it_gets_an_unclean_leader_by_and_by(tmp_path: Path):
    """unclean.leader.election.interval.ms: the setting is changed while no replica may lead; the next look elects."""
    async with controller_at(tmp_path, unclean_leader_election_interval_ms="20") as one:
        epochs = {broker_id: await one.register(broker_id, incarnation=broker_id + 1) for broker_id in (0, 1)}
        await one.create("t", factor=2)
        topic = one.controller.image.topic_named("t")
        assert topic is not None
        last, other = topic.partitions[0].replicas
        for broker_id in (other, last):
            await one.heartbeat(broker_id, epochs[broker_id], want_fence=True)
        await one.heartbeat(other, epochs[other])
        assert one.controller.image.topics[topic.topic_id].partitions[0].leader == -1
        allowed = incremental_alter_configs.AlterableConfig("unclean.leader.election.enable", 0, "true")
        resource = incremental_alter_configs.AlterConfigsResource(2, "t", [allowed])
        message = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
        assert (await one.ask(apis.INCREMENTAL_ALTER_CONFIGS, message)).responses[0].error_code == 0
        await until(lambda: one.controller.image.topics[topic.topic_id].partitions[0].leader == other)
        assert one.controller.image.topics[topic.topic_id].partitions[0].recovering


async def test_another_incarnation_is_refused_while_the_session_lives(one: OneController):
    """ClusterControlManager.registerBroker: the same incarnation gets its epoch again, another one is refused."""
    epoch = await one.register(0)
    await one.heartbeat(0, epoch)
    other = await one.ask(apis.BROKER_REGISTRATION, registration(0, incarnation=2))
    assert other.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    same = await one.ask(apis.BROKER_REGISTRATION, registration(0))
    assert (same.error_code, same.broker_epoch) == (0, epoch)


async def test_a_registration_whose_connection_has_closed_is_not_decided(one: OneController):
    """Of a process that has died: it would replace the registration of the next one, whose heartbeats get stale."""
    epoch = await one.register(0, incarnation=2)
    dead = registration(0, incarnation=1)
    failed: list[ErrorCode] = []
    one.controller.active.heartbeats.end_session(0, epoch)  # type: ignore[union-attr]
    one.handlers[apis.BROKER_REGISTRATION].handle(
        Call(
            apis.BROKER_REGISTRATION,
            4,
            dead,
            failed.append,
            lambda error, _: failed.append(error),
            is_open=lambda: False,
        )
    )
    await until(lambda: failed)
    assert failed == [ErrorCode.NETWORK_EXCEPTION]
    assert one.controller.image.brokers[0].epoch == epoch
    assert not (await one.heartbeat(0, epoch)).error_code


async def test_kraft_version_rises_with_the_other_levels_and_never_falls(tmp_path: Path):
    """KIP-853: the static voters move into the log by a control record, before the records of the other features.

    An update that is refused changes nothing, kraft.version included.
    """
    async with controller_at(tmp_path, has_static_voters=True) as one:
        assert one.controller.kraft_version == 0
        kraft = update_features.FeatureUpdateKey("kraft.version", 1)
        unknown = update_features.FeatureUpdateKey("no.such.version", 1)
        refused = await one.ask(apis.UPDATE_FEATURES, update_features.UpdateFeaturesRequest(9_000, [kraft, unknown]))
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert one.controller.kraft_version == 0
        group = update_features.FeatureUpdateKey("group.version", 0, upgrade_type=2)
        raised = await one.ask(apis.UPDATE_FEATURES, update_features.UpdateFeaturesRequest(9_000, [group, kraft]))
        assert raised.error_code == 0
        assert one.controller.kraft_version == 1
        assert "group.version" not in one.controller.image.features
        fall = update_features.FeatureUpdateKey("kraft.version", 0, upgrade_type=3)
        kept = await one.ask(apis.UPDATE_FEATURES, update_features.UpdateFeaturesRequest(9_000, [fall]))
        assert kept.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert one.controller.kraft_version == 1


async def test_quorum_state_keeps_its_version_until_the_election_after_kraft_version_rose(tmp_path: Path):
    """The file is written at elections alone, in the version of that moment (FileQuorumStateStore)."""
    file = tmp_path / "__cluster_metadata-0" / "quorum-state"
    async with controller_at(tmp_path, has_static_voters=True) as one:
        kraft = update_features.FeatureUpdateKey("kraft.version", 1)
        await one.ask(apis.UPDATE_FEATURES, update_features.UpdateFeaturesRequest(9_000, [kraft]))
        assert one.controller.kraft_version == 1
        assert '"data_version":0' in file.read_text()
    async with controller_at(tmp_path, has_static_voters=True):
        assert '"data_version":1' in file.read_text()


async def test_clients_before_version_4_hear_of_no_feature_that_begins_at_0(one: OneController):
    """KAFKA-17492, KAFKA-17011: their decoders refuse a lowest level of 0; to them the feature is unsupported."""
    found = {}
    for version in (3, 4):
        response = await one.ask(apis.API_VERSIONS, api_versions.ApiVersionsRequest("test", "1"), version)
        found[version] = {feature.name: feature.min_version for feature in response.supported_features}
    assert set(found[3].values()).isdisjoint({0})
    assert found[4]["kraft.version"] == 0
    assert found[4].keys() > found[3].keys()


async def test_a_new_topics_settings_are_in_the_response(one: OneController):
    """KIP-525: the settings in force with their sources: the topic, the cluster's dynamic default, the default."""
    await one.register(0)
    config = create_topics.CreatableTopicConfig("retention.ms", "5000")
    topic = create_topics.CreatableTopic("t", 1, 1, configs=[config])
    response = await one.ask(apis.CREATE_TOPICS, create_topics.CreateTopicsRequest(topics=[topic]))
    found = {one.name: (one.value, one.config_source) for one in response.topics[0].configs}
    assert found["retention.ms"] == ("5000", 1)
    assert found["min.insync.replicas"] == ("1", 3)
    assert found["cleanup.policy"] == ("delete", 5)


async def test_a_client_that_creates_too_many_partitions_is_refused_for_a_while(one: OneController):
    """KIP-599: controller_mutation_rate; the request that exhausts the quota is served, the next one refused.

    A client of a version that does not know the error is throttled and served.
    """
    await one.register(0)
    entity = [alter_client_quotas.EntityData("user", "ANONYMOUS")]
    limit = alter_client_quotas.OpData("controller_mutation_rate", 1.0)
    quota = alter_client_quotas.AlterClientQuotasRequest([alter_client_quotas.EntryData(entity, [limit])])
    assert (await one.ask(apis.ALTER_CLIENT_QUOTAS, quota)).entries[0].error_code == 0
    first, second = await one.create("a", partitions=50), await one.create("b")
    assert first.topics[0].error_code == 0
    assert second.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert second.throttle_time_ms > 0
    assert "b" not in one.controller.image.topic_ids
    topic = create_topics.CreatableTopic("b", 1, 1)
    older = await one.ask(apis.CREATE_TOPICS, create_topics.CreateTopicsRequest(topics=[topic]), version=5)
    assert (older.topics[0].error_code, older.throttle_time_ms > 0) == (0, True)


async def test_no_op_records_are_written_while_nothing_happens(tmp_path: Path):
    """KIP-835: metadata.max.idle.interval.ms lets brokers see how far the log is."""
    async with controller_at(tmp_path, metadata_max_idle_interval_ms="10") as one:
        end = one.node.log.end_offset
        await until(lambda: one.node.log.end_offset > end + 2)


async def test_the_image_of_a_restart_is_that_of_the_log(tmp_path: Path):
    """Acknowledged changes are there, whatever the log held beyond them; the next epoch begins behind them."""
    async with controller_at(tmp_path) as one:
        await one.register(0)
        await one.create("t", "u", partitions=3)
        image = one.controller.image
    async with controller_at(tmp_path) as one:
        assert same(one.controller.image, image)
        assert one.controller.active is not None
        assert same(one.controller.active.image, image)


async def test_a_snapshot_is_written_and_loaded_at_the_next_start(tmp_path: Path):
    """SnapshotGenerator, KIP-630: after a number of bytes; the log in front of it may go."""
    async with controller_at(tmp_path, metadata_log_max_record_bytes_between_snapshots="2000") as one:
        await one.register(0)
        for name in "abcdefgh":
            await one.create(name, partitions=5)
        await until(lambda: one.node.log.newest_snapshot is not None)
        image = one.controller.image
        end = one.node.log.newest_snapshot.offset
    newest = max(path.name for path in (tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))
    assert newest.startswith(f"{end:020d}")
    async with controller_at(tmp_path) as one:
        assert one.parts.committed.next_offset >= end
        assert same(one.controller.image, image)


async def test_a_controller_whose_log_is_lost_goes_on_from_its_snapshot(tmp_path: Path):
    """MetadataLoader: a log that begins behind records that were never taken in needs the snapshot before it."""
    async with controller_at(tmp_path, metadata_log_max_record_bytes_between_snapshots="500") as one:
        await one.register(0)
        for name in "abc":
            await one.create(name, partitions=5)
        await until(lambda: one.node.log.newest_snapshot is not None)
    for path in (tmp_path / "__cluster_metadata-0").iterdir():
        if path.suffix in {".log", ".index", ".timeindex"}:
            path.unlink()
    async with controller_at(tmp_path) as one:
        assert one.node.log.start_offset > 0
        assert one.controller.active is not None
        assert "a" in one.controller.active.image.topic_ids
        assert (await one.create("d")).topics[0].error_code == 0


async def test_a_leader_decides_nothing_before_it_has_read_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """QuorumController.claim: from half of the log it would create again what exists, or forget brokers."""
    async with controller_at(tmp_path) as one:
        await one.register(0)
        for number in range(30):
            await one.create(f"t{number}")
    monkeypatch.setattr(committed_metadata, "_PORTION_BYTES", 100)
    async with controller_at(tmp_path) as one:
        assert one.controller.active is not None
        assert len(one.controller.active.image.topic_ids) == 30


def same(one: MetadataImage, other: MetadataImage) -> bool:
    """Whether two images are equal but for the registration of the controller, which each process renews."""
    assert NODE_ID not in one.brokers
    return one == other
