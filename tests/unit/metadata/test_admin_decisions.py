"""Settings, features, client quotas, credentials, access lists, producer ids and activation."""

from __future__ import annotations

import hashlib
import hmac
from random import Random

import pytest
from tests.unit.metadata.cluster_world import CLUSTER_ID, FEATURES, World

from tidegauge.cluster_metadata.access_lists import (
    Binding,
    Entry,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from tidegauge.cluster_metadata.credentials import Deletion, Upsertion
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.kafka.metadata_records.producer_ids_record import ProducerIdsRecord
from tidegauge_controller.metadata.decisions import access_lists
from tidegauge_controller.metadata.decisions.access_lists import create_entries, delete_entries
from tidegauge_controller.metadata.decisions.activation import MAX_PRODUCER_ID, activate, allocate_producer_ids, no_op
from tidegauge_controller.metadata.decisions.client_quotas import QuotaAlteration, alter_client_quotas
from tidegauge_controller.metadata.decisions.configs import Alteration, alter_configs, replace_configs
from tidegauge_controller.metadata.decisions.configs import Operation as Op
from tidegauge_controller.metadata.decisions.credentials import alter_credentials
from tidegauge_controller.metadata.decisions.features import (
    FeatureUpdate,
    UpgradeType,
    update_failed,
    update_features,
)
from tidegauge_controller.metadata.decisions.registration import register_controller
from tidegauge_controller.metadata.decisions.view import ClusterView, ControllerSettings, Decision
from tidegauge_controller.metadata.image import (
    BROKER,
    CLIENT_METRICS,
    EMPTY,
    GROUP,
    TOPIC,
    ConfigResource,
    CredentialKey,
    FeatureRange,
    RegisteredController,
)
from tidegauge_controller.metadata.records import made

T = ConfigResource(TOPIC, "t")
ALL = ConfigResource(BROKER, "")
MIN_ISR = "min.insync.replicas"
SET, DELETE, APPEND, SUBTRACT = Op.SET, Op.DELETE, Op.APPEND, Op.SUBTRACT


def with_topic(**options: object) -> World:
    world = World(**options)  # type: ignore[arg-type] # options of any kind
    world.create("t", [0, 1])
    return world


def altered(
    world: World, resource: ConfigResource, **keys: tuple[Op, str | None]
) -> tuple[str, list[tuple[str, str | None]]]:
    """Return an alteration's refusal, and the settings that it writes.

    Names have underscores for dots.
    """
    wanted = {resource: {key.replace("_", "."): Alteration(*how) for key, how in keys.items()}}
    decision = alter_configs(world.view, wanted)
    world.take(decision)
    problem = decision.response[resource]
    written = [(one.message.name, one.message.value) for one in decision.records if one.type.label == "CONFIG_RECORD"]
    return problem.message if problem is not None else "", written


def test_a_key_of_a_topic_is_written_only_if_it_changes() -> None:
    world = with_topic()
    assert altered(world, T, retention_ms=(SET, "5")) == ("", [("retention.ms", "5")])
    assert altered(world, T, retention_ms=(SET, "5")) == ("", [])
    assert altered(world, T, retention_ms=(DELETE, None)) == ("", [("retention.ms", None)])
    assert altered(world, T, retention_ms=(DELETE, None)) == ("", [])


def test_a_key_of_brokers_is_written_in_any_case() -> None:
    """KAFKA-14136: brokers reload what a file behind the setting has."""
    world = with_topic()
    for _ in range(2):
        assert altered(world, ALL, log_retention_ms=(SET, "5")) == ("", [("log.retention.ms", "5")])
    assert altered(world, ConfigResource(BROKER, "1"), x=(SET, "5")) == ("", [("x", "5")])


def test_lists_gain_what_they_lack_and_lose_parts() -> None:
    world = with_topic()
    assert altered(world, T, cleanup_policy=(APPEND, "compact")) == ("", [("cleanup.policy", "delete,compact")])
    assert altered(world, T, cleanup_policy=(APPEND, "compact")) == ("", [])
    assert altered(world, T, cleanup_policy=(SUBTRACT, "delete")) == ("", [("cleanup.policy", "compact")])
    assert altered(world, T, retention_ms=(APPEND, "5")) == (
        "Can't APPEND to key retention.ms because its type is not LIST.",
        [],
    )


REFUSED_SETTINGS = [
    (
        ConfigResource(TOPIC, "x"),
        "retention.ms",
        "1",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'x' does not exist.",
    ),
    (T, "no.such", "1", ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
    (
        T,  # a broker of Kafka 4 would end with a fatal fault (KIP-1030)
        "segment.bytes",
        "20000",
        ErrorCode.INVALID_CONFIG,
        "Invalid value 20000 for configuration segment.bytes: Value must be at least 1048576",
    ),
    (
        ConfigResource(TOPIC, ""),
        "no.such",
        "1",
        ErrorCode.INVALID_REQUEST,
        "Default topic resources are not allowed.",
    ),
    (
        ConfigResource(TOPIC, ".."),
        "no.such",
        "1",
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic name is invalid: '..' is not allowed",
    ),
    (ConfigResource(BROKER, "9"), "x", "1", ErrorCode.BROKER_ID_NOT_REGISTERED, "No node with id 9 found."),
    (
        ConfigResource(BROKER, "a"),
        "x",
        "1",
        ErrorCode.INVALID_REQUEST,
        "Unable to parse broker name as a base 10 number.",
    ),
    (
        ALL,
        "x",
        "a" * 32_768,
        ErrorCode.INVALID_CONFIG,
        "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
    ),
    (
        ConfigResource(BROKER, "1"),
        MIN_ISR,
        "1",
        ErrorCode.INVALID_CONFIG,
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    ),
    (
        ALL,
        MIN_ISR,
        None,
        ErrorCode.INVALID_CONFIG,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    ),
    (
        ConfigResource(GROUP, ""),
        "share.isolation.level",
        "read_committed",
        ErrorCode.INVALID_REQUEST,
        "Default group resources are not allowed.",
    ),
    (
        ConfigResource(GROUP, "g"),
        "share.record.lock.duration.ms",
        "1",
        ErrorCode.INVALID_CONFIG,
        "share.record.lock.duration.ms must be greater than or equal to group.share.min.record.lock.duration.ms "
        "(15000), and is 1",
    ),
    (ConfigResource(1, ""), "x", "1", ErrorCode.UNSUPPORTED_VERSION, "Unknown resource type 1."),
    (
        ConfigResource(CLIENT_METRICS, "m"),
        "x",
        "1",
        ErrorCode.INVALID_REQUEST,
        "Settings of resources of type 16 are not kept by this controller",
    ),
]


def test_a_group_that_does_not_exist_may_have_settings() -> None:
    """ControllerConfigurationValidator, GroupConfig: they wait for it, and outlive it."""
    world, group = with_topic(), ConfigResource(GROUP, "g")
    decision = alter_configs(world.view, {group: {"share.isolation.level": Alteration(SET, "read_committed")}})
    assert decision.response == {group: None}
    world.take(decision)
    assert world.view.image.config(*group) == {"share.isolation.level": "read_committed"}


@pytest.mark.parametrize(("resource", "key", "value", "error", "sentence"), REFUSED_SETTINGS)
def test_a_setting_is_refused_and_leaves_the_others(
    resource: ConfigResource, key: str, value: str | None, error: ErrorCode, sentence: str
) -> None:
    world = with_topic()
    good = ConfigResource(BROKER, "2")
    wanted = {resource: {key: Alteration(SET, value)}, good: {"x": Alteration(SET, "1")}}
    decision = alter_configs(world.view, wanted)
    problem = decision.response[resource]
    assert problem is not None
    assert (problem.code, problem.message, decision.response[good]) == (error, sentence, None)
    assert [one.message.resource_name for one in decision.records] == ["2"]


def test_without_elr_min_isr_may_be_a_brokers() -> None:
    world = with_topic(elr=False)
    assert altered(world, ConfigResource(BROKER, "1"), min_insync_replicas=(SET, "2"))[0] == ""
    records = alter_configs(world.view, {T: {MIN_ISR: Alteration(SET, "2")}}).records
    assert [one.type.label for one in records] == ["CONFIG_RECORD"]


def test_a_change_of_min_isr_clears_the_elr_chosen_under_the_old_one() -> None:
    world = World()
    world.create("t", [0, 1], configs={MIN_ISR: "2"})
    world.fence(1)
    assert world.state().elr == (1,)
    epoch = world.state().partition_epoch
    altered(world, T, min_insync_replicas=(SET, "1"))
    assert (world.state().elr, world.state().partition_epoch) == ((), epoch + 1)


def test_cordoned_directories_need_metadata_version_30() -> None:
    world = World(metadata_version=29)
    assert altered(world, ALL, cordoned_log_dirs=(SET, "/a"))[0] == (
        "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
    )
    assert altered(World(), ALL, cordoned_log_dirs=(SET, "/a"))[0] == ""


def test_all_settings_of_a_resource_are_replaced() -> None:
    world = with_topic()
    world.take(replace_configs(world.view, {T: {"retention.ms": "5", "segment.ms": "6"}}))
    decision = replace_configs(world.view, {T: {"segment.ms": "6", "flush.ms": "7"}}, validate_only=True)
    assert (decision.records, decision.response) == ([], {T: None})
    world.take(replace_configs(world.view, {T: {"segment.ms": "6", "flush.ms": "7"}}))
    assert world.view.image.config(*T) == {"segment.ms": "6", "flush.ms": "7"}
    refused = replace_configs(world.view, {ALL: {}})
    assert [one.message for one in refused.response.values() if one is not None] == [
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    ]


REFUSED_UPDATES = [
    (
        FeatureUpdate("metadata.version", 29, UpgradeType.UNKNOWN),
        "The controller does not support the given upgrade type.",
    ),
    (FeatureUpdate("metadata.version", -1), "A feature version cannot be less than 0."),
    (FeatureUpdate("metadata.version", 99), "Local controller 3000 only supports versions 25-30"),
    (FeatureUpdate("metadata.version", 24), "Local controller 3000 only supports versions 25-30"),
    (FeatureUpdate("no.such", 1), "Local controller 3000 does not support this feature."),
    (
        FeatureUpdate("eligible.leader.replicas.version", 0),
        "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
        "downgrade.",
    ),
]


@pytest.mark.parametrize(("update", "why"), REFUSED_UPDATES)
def test_a_feature_update_is_refused(update: FeatureUpdate, why: str) -> None:
    """FeatureControlManager.updateFeature: all or nothing."""
    world = World()
    good = FeatureUpdate("metadata.version", 30)
    with pytest.raises(TidegaugeError) as refusal:
        update_features(world.view, [good, update], [])
    assert refusal.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert refusal.value.message == f"Invalid update version {update.level} for feature {update.name}. {why}"


def refused(world: World, update: FeatureUpdate, voters: tuple[int, ...] = ()) -> str:
    with pytest.raises(TidegaugeError) as refusal:
        update_features(world.view, [update], voters)
    return refusal.value.message.partition(". ")[2] or refusal.value.message


def test_a_feature_must_be_supported_by_every_registered_broker_and_controller() -> None:
    """A broker that is long dead counts, too: it has to be unregistered first."""
    world = World([0, 1], metadata_version=29)
    world.register(2, features={**FEATURES, "metadata.version": FeatureRange(7, 29)})
    upgrade = FeatureUpdate("metadata.version", 30)
    assert refused(world, upgrade) == "Broker 2 only supports versions 7-29"
    world = World(metadata_version=29)
    assert refused(world, upgrade, (3000, 3001)) == (
        "controller 3001 has not registered, and may not support this feature"
    )
    found = RegisteredController(3001, "AAAAAAAAAAAAAAAAAAAAAA", (), {})
    world.take(register_controller(found))
    assert refused(world, upgrade, (3000, 3001)) == "Controller 3001 does not support this feature."


def test_metadata_version_falls_only_where_no_record_changed() -> None:
    world = World()
    down = FeatureUpdate("metadata.version", 29, UpgradeType.SAFE_DOWNGRADE)
    with pytest.raises(TidegaugeError) as refusal:
        update_features(world.view, [down], [])
    assert update_failed(refusal.value.message) == (
        "The update failed for all features since the following feature had an error: Unsupported metadata.version "
        "downgrade from 30 to 29. Refusing to perform the requested downgrade because it might delete metadata "
        "information."
    )
    unsafe = down._replace(upgrade_type=UpgradeType.UNSAFE_DOWNGRADE)
    with pytest.raises(TidegaugeError, match="Unsafe metadata downgrade is not supported in this version"):
        update_features(world.view, [unsafe], [])
    world = World(metadata_version=29)
    assert refused(world, FeatureUpdate("metadata.version", 30, UpgradeType.SAFE_DOWNGRADE)) == (
        "Can't downgrade to a newer version."
    )
    world.take(update_features(world.view, [FeatureUpdate("metadata.version", 25, UpgradeType.SAFE_DOWNGRADE)], []))
    assert world.view.image.metadata_version == 25


def test_enabling_elr_writes_the_settings_that_it_needs_first() -> None:
    """The sequence of kafka-features upgrade --release-version 4.3 on Apache Kafka 4.3.1."""
    world = World(elr=False, metadata_version=25, min_insync_replicas=2)
    world.set(BROKER, "1", MIN_ISR, "3")
    on = FeatureUpdate("eligible.leader.replicas.version", 1)
    checked = update_features(world.view, [on], [], validate_only=True)
    assert checked.records == []
    records = update_features(world.view, [FeatureUpdate("metadata.version", 30), on], []).records
    shown = [(one.type.label, *[getattr(one.message, name) for name in one.message.__slots__]) for one in records]
    assert shown == [
        ("CONFIG_RECORD", 4, "", MIN_ISR, "2"),
        ("CONFIG_RECORD", 4, "1", MIN_ISR, None),
        ("FEATURE_LEVEL_RECORD", "metadata.version", 30),
        ("FEATURE_LEVEL_RECORD", "eligible.leader.replicas.version", 1),
    ]


REFUSED_QUOTAS = [
    ([], [], "Invalid empty client quota entity"),
    ([("group", "a")], [], "Unhandled client quota entity type: group"),
    ([("user", "a"), ("user", "b")], [], "Invalid client quota entity, duplicate entity entry user"),
    ([("user", "")], [], "Empty user not supported"),
    (
        [("ip", "127.0.0.1"), ("user", "a")],
        [],
        "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
    ),
    ([("ip", "nowhere")], [], "nowhere is not a valid IP or resolvable host."),
    ([("user", "a")], [("x", 1.0)], "Invalid configuration key x"),
    ([("ip", None)], [("producer_byte_rate", 1.0)], "Invalid configuration key producer_byte_rate"),
    ([("user", "a")], [("producer_byte_rate", 0.0)], "Quota producer_byte_rate must be greater than 0"),
    ([("user", "a")], [("producer_byte_rate", float("nan"))], "Quota producer_byte_rate must be greater than 0"),
    ([("user", "a")], [("producer_byte_rate", 1.5)], "producer_byte_rate cannot be a fractional value."),
    ([("user", "a")], [("producer_byte_rate", 1e19)], "Proposed value for producer_byte_rate is too large for a LONG."),
    (
        [("ip", "::1")],
        [("connection_creation_rate", 3e9)],
        "Proposed value for connection_creation_rate is too large for an INT.",
    ),
]


@pytest.mark.parametrize(("entity", "values", "sentence"), REFUSED_QUOTAS)
def test_a_client_quota_is_refused(
    entity: list[tuple[str, str | None]], values: list[tuple[str, float | None]], sentence: str
) -> None:
    """ClientQuotaControlManager."""
    decision = alter_client_quotas(World().view, [QuotaAlteration(entity, values)])
    assert ([one.message for one in decision.response if one is not None], decision.records) == ([sentence], [])


def test_client_quotas_are_written_key_by_key_where_they_change() -> None:
    world = World()
    alice = [("user", "alice"), ("client-id", None)]
    first = QuotaAlteration(alice, [("producer_byte_rate", 5.0), ("request_percentage", 1.5)])
    world.take(alter_client_quotas(world.view, [first]))
    second = QuotaAlteration(
        alice, [("producer_byte_rate", 5.0), ("request_percentage", None), ("consumer_byte_rate", None)]
    )
    assert alter_client_quotas(world.view, [second], validate_only=True).records == []
    records = world.take(alter_client_quotas(world.view, [second]))
    assert [(one.message.key, one.message.remove) for one in records] == [("request_percentage", True)]
    assert [dict(values) for values in world.view.image.quotas.values()] == [{"producer_byte_rate": 5.0}]


def test_an_entity_or_a_key_may_be_named_once() -> None:
    world = World()
    alice = QuotaAlteration([("user", "alice")], [("producer_byte_rate", 5.0)])
    twice = QuotaAlteration([("user", "bob")], [("producer_byte_rate", 5.0), ("producer_byte_rate", 6.0)])
    decision = alter_client_quotas(world.view, [alice, alice, twice])
    assert [None if one is None else one.message.partition(" ")[0] for one in decision.response] == [
        None,
        "Ignoring",
        "Duplicate",
    ]
    assert len(decision.records) == 1


def salted(user: str, mechanism: int = 1, iterations: int = 4096) -> Upsertion:
    return Upsertion(user, mechanism, iterations, b"salt", b"salted password")


def test_credentials_are_the_keys_of_the_salted_password() -> None:
    """RFC 5802: StoredKey is the hash of the client key, which the salted password signs; so is the server key."""
    world = World()
    world.take(alter_credentials(world.view, [], [salted("alice", 2)]))
    found = world.view.image.credentials[CredentialKey(2, "alice")]
    client_key = hmac.digest(b"salted password", b"Client Key", "sha512")
    assert found.stored_key == hashlib.sha512(client_key).digest()
    assert found.server_key == hmac.digest(b"salted password", b"Server Key", "sha512")
    world.take(alter_credentials(world.view, [Deletion("alice", 2)], []))
    assert len(world.view.image.credentials) == 0


REFUSED_CREDENTIALS = [
    ([], [salted("")], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
    ([], [salted("a", 3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    ([], [salted("a", 1, 4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
    ([], [salted("a", 1, 16_385)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
    ([Deletion("a", 1)], [], ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
    (
        [],
        [salted("a", 1), salted("a", 2)],
        ErrorCode.DUPLICATE_RESOURCE,
        "A user credential cannot be altered twice in the same request",
    ),
]


@pytest.mark.parametrize(("deletions", "upsertions", "error", "sentence"), REFUSED_CREDENTIALS)
def test_a_credential_is_refused_and_leaves_other_users(
    deletions: list[Deletion], upsertions: list[Upsertion], error: ErrorCode, sentence: str
) -> None:
    decision = alter_credentials(World().view, deletions, [*upsertions, salted("other")])
    problems = [(one.code, one.message) for one in decision.response.values() if one is not None]
    assert problems == [(error, sentence)]
    assert [one.message.name for one in decision.records] == ["other"]


def binding(
    kind: ResourceType = ResourceType.TOPIC,
    name: str = "t",
    pattern: PatternType = PatternType.LITERAL,
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
) -> Binding:
    return Binding(Pattern(kind, name, pattern), Entry("User:a", "*", operation, permission))


REFUSED_ENTRIES = [
    (binding(ResourceType.ANY), "Invalid resourceType ANY"),
    (binding(pattern=PatternType.MATCH), "Invalid patternType MATCH"),
    (binding(operation=Operation.UNKNOWN), "Invalid operation UNKNOWN"),
    (binding(permission=Permission.ANY), "Invalid permissionType ANY"),
    (binding(name=""), "Resource name should not be empty"),
    (
        Binding(binding().pattern, binding().entry._replace(principal="a")),
        "Could not parse principal from `a` (no colon is present separating the principal type from the principal "
        "name)",
    ),
]


@pytest.mark.parametrize(("bad", "sentence"), REFUSED_ENTRIES)
def test_an_access_control_entry_is_refused_and_leaves_the_others(bad: Binding, sentence: str) -> None:
    """AclControlManager.validateNewAcl."""
    decision = create_entries(World().view, [bad, binding()], Random(0))
    assert [None if one is None else one.message for one in decision.response] == [sentence, None]
    assert len(decision.records) == 1


def test_an_entry_that_exists_is_not_written_again_and_filters_remove() -> None:
    world = World()
    other = binding(operation=Operation.WRITE)
    first = create_entries(world.view, [binding(), binding(), other], Random(0))
    assert (first.response, len(first.records)) == ([None, None, None], 2)
    world.take(first)
    assert create_entries(world.view, [binding()], Random(1)).records == []
    reads, everything = Filter(operation=Operation.READ), Filter()
    unknown = Filter(kind=ResourceType.UNKNOWN), Filter(operation=Operation.UNKNOWN)
    decision = delete_entries(world.view, [reads, everything, *unknown])
    assert [(None if one is None else one.message, len(found)) for one, found in decision.response] == [
        (None, 1),
        (None, 2),
        ("Unknown patternFilter.", 0),
        ("Unknown entryFilter.", 0),
    ]
    assert len(world.take(decision)) == 2
    assert len(world.view.image.access_lists) == 0


def test_a_deletion_of_too_many_entries_is_refused_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.take(create_entries(world.view, [binding(), binding(operation=Operation.WRITE)], Random(0)))
    monkeypatch.setattr(access_lists, "MAX_RECORDS_PER_REQUEST", 2)
    assert len(delete_entries(world.view, [Filter()]).records) == 2
    monkeypatch.setattr(access_lists, "MAX_RECORDS_PER_REQUEST", 1)
    with pytest.raises(TidegaugeError, match="Cannot remove more than 1 acls in a single delete operation"):
        delete_entries(world.view, [Filter()])


def test_a_deletion_that_would_report_an_entry_for_too_many_filters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """99,000 filters that each match 10,000 entries would be a response of a billion."""
    world = World()
    world.take(create_entries(world.view, [binding(), binding(operation=Operation.WRITE)], Random(0)))
    monkeypatch.setattr(access_lists, "MAX_REPORTED", 4)
    assert len(delete_entries(world.view, [Filter()] * 2).records) == 2
    with pytest.raises(TidegaugeError, match="The filters match more than 4 acls"):
        delete_entries(world.view, [Filter()] * 3)


def test_blocks_of_producer_ids_follow_each_other() -> None:
    world = World()
    blocks = []
    for broker_id in (0, 1, 0):
        decision = allocate_producer_ids(world.view, broker_id, world.epoch(broker_id))
        world.take(decision)
        blocks.append(decision.response)
    assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]
    with pytest.raises(TidegaugeError) as refusal:
        allocate_producer_ids(world.view, 0, 1)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH
    world.take(Decision([made(ProducerIdsRecord(0, 0, MAX_PRODUCER_ID - 10))], None))
    with pytest.raises(TidegaugeError, match="Exhausted all producerIds"):
        allocate_producer_ids(world.view, 0, world.epoch(0))


def test_an_empty_log_gets_the_bootstrap_records_in_one_transaction() -> None:
    view = ClusterView(EMPTY, ControllerSettings(3000, CLUSTER_ID, min_insync_replicas=2))
    levels = [made(FeatureLevelRecord("metadata.version", 30))]
    labels = [one.type.label for one in activate(view, levels, in_transaction=False).records]
    assert labels == ["BEGIN_TRANSACTION_RECORD", "FEATURE_LEVEL_RECORD", "END_TRANSACTION_RECORD"]
    levels.append(made(FeatureLevelRecord("eligible.leader.replicas.version", 1)))
    decision = activate(view, levels, in_transaction=True)
    assert [one.type.label for one in decision.records] == [
        "ABORT_TRANSACTION_RECORD",
        "BEGIN_TRANSACTION_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "CONFIG_RECORD",
        "END_TRANSACTION_RECORD",
    ]
    assert (decision.records[4].message.value, decision.atomic) == ("2", True)
    with pytest.raises(TidegaugeError, match=r"have no metadata.version"):
        activate(view, levels[1:], in_transaction=False)


def test_a_log_with_records_gets_at_most_the_abort_of_an_open_transaction() -> None:
    view = World().view
    assert activate(view, [], in_transaction=False).records == []
    (record,) = activate(view, [], in_transaction=True).records
    assert (record.type.label, record.message.reason) == ("ABORT_TRANSACTION_RECORD", "Controller failover")
    assert [one.type.label for one in no_op().records] == ["NO_OP_RECORD"]
