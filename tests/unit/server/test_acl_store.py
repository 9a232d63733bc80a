"""Access control lists in ZooKeeper: writes, refusals, and the lists in force at each step."""

from __future__ import annotations

import pytest
from config_zookeeper import FakeZooKeeper

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
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.principal import Principal
from tidegauge.settings import parse_broker_settings
from tidegauge.znodes.access_lists import decode_list
from tidegauge_broker.security.acls.authorizer import AclAuthorizer, Rules
from tidegauge_broker.server.acls.access_control import authorizer_of
from tidegauge_broker.server.cluster.zookeeper.acl_store import AclStore
from tidegauge_broker.server.service.caller import Caller
from tidegauge_controller.zookeeper.decisions.steps import CreateNode, DeleteNode

ALICE = Caller("c", "L", host="10.0.0.1", principal=Principal("User", "alice"))
ORDERS = Pattern(ResourceType.TOPIC, "orders")
PREFIX = Pattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
READ = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = Entry("User:alice", "*", Operation.WRITE, Permission.ALLOW)
PATH = "/kafka-acl/Topic/orders"


class AclZooKeeper(FakeZooKeeper):
    """Takes deletions and numbered nodes in transactions too."""

    async def ensure_path(self, path: str) -> None:
        if path not in self.nodes:
            self.put(path, b"")

    async def multi(self, operations: list[object]) -> list[None]:
        numbered = [one for one in operations if isinstance(one, CreateNode) and one.sequence]
        deleted = [one for one in operations if isinstance(one, DeleteNode)]
        rest = [one for one in operations if one not in [*numbered, *deleted]]
        found = await super().multi(rest)
        for one in deleted:
            await self.delete(one.path)
        for one in numbered:
            await self.create(one.path, one.data or b"", sequence=True)
        return found


@pytest.fixture
def zookeeper() -> AclZooKeeper:
    return AclZooKeeper()


@pytest.fixture
async def store(zookeeper: AclZooKeeper) -> AclStore:
    made = AclStore(zookeeper, AclAuthorizer(Rules()))  # type: ignore[arg-type] # as far as lists need it
    await made.read_all()
    return made


def may(store: AclStore, operation: Operation, name: str = "orders") -> bool:
    return store.allows(ALICE, operation, ResourceType.TOPIC, name, "Produce")


def changes(zookeeper: AclZooKeeper) -> list[bytes]:
    return [data for path, (data, _) in sorted(zookeeper.nodes.items()) if "/acl_changes_" in path]


async def test_an_entry_is_written_notified_and_in_force(zookeeper: AclZooKeeper, store: AclStore) -> None:
    assert not may(store, Operation.READ)
    outcomes = await store.create([Binding(ORDERS, READ), Binding(PREFIX, WRITE), Binding(ORDERS, READ)])
    assert [one.error for one in outcomes] == [ErrorCode.NONE] * 3
    assert decode_list(zookeeper.nodes[PATH][0]) == {READ}
    assert may(store, Operation.READ)
    assert may(store, Operation.WRITE)
    assert changes(zookeeper)[0] == b"TOPIC:orders"
    assert len(changes(zookeeper)) == 2


async def test_what_is_there_already_is_not_written_again(zookeeper: AclZooKeeper, store: AclStore) -> None:
    await store.create([Binding(ORDERS, READ)])
    await store.create([Binding(ORDERS, READ)])
    assert len(changes(zookeeper)) == 1


async def test_of_two_writers_none_is_lost(zookeeper: AclZooKeeper, store: AclStore) -> None:
    await store.create([Binding(ORDERS, READ)])
    other = AclStore(zookeeper, AclAuthorizer(Rules()))  # type: ignore[arg-type]
    zookeeper.before_multi = lambda: (
        setattr(zookeeper, "before_multi", None),
        zookeeper.put(PATH, b'{"version":1,"acls":[]}'),
    )
    await other.create([Binding(ORDERS, WRITE)])
    assert decode_list(zookeeper.nodes[PATH][0]) == {WRITE}
    await store.read(ORDERS)
    assert not may(store, Operation.READ)


async def test_deletion_removes_what_filters_match_and_says_for_which(zookeeper: AclZooKeeper, store: AclStore) -> None:
    await store.create([Binding(ORDERS, READ), Binding(ORDERS, WRITE), Binding(PREFIX, READ)])
    filters = [Filter(ResourceType.TOPIC, "orders", PatternType.LITERAL, operation=Operation.READ), Filter(name="ord")]
    first, second = await store.delete(filters)
    assert [binding for binding, _ in first] == [Binding(ORDERS, READ)]
    assert [binding for binding, _ in second] == [Binding(PREFIX, READ)]
    assert decode_list(zookeeper.nodes[PATH][0]) == {WRITE}
    await store.delete([Filter()])
    assert PATH not in zookeeper.nodes, "an empty list is no list"
    assert not may(store, Operation.WRITE)


async def test_a_list_that_this_broker_does_not_know_yet_is_deleted_by_its_name(
    zookeeper: AclZooKeeper, store: AclStore
) -> None:
    """AclAuthorizer.deleteAcls: filters of one name are looked for in ZooKeeper."""
    other = AclStore(zookeeper, AclAuthorizer(Rules()))  # type: ignore[arg-type]
    await other.create([Binding(ORDERS, READ)])
    [found] = await store.delete([Filter(ResourceType.TOPIC, "orders", PatternType.ANY)])
    assert [binding for binding, _ in found] == [Binding(ORDERS, READ)]


@pytest.mark.parametrize(
    ("pattern", "entry", "sentence"),
    [
        (Pattern(ResourceType.CLUSTER, "x"), READ, "The only valid name for the CLUSTER resource is kafka-cluster"),
        (Pattern(ResourceType.TOPIC, ""), READ, "Invalid empty resource name"),
        (Pattern(ResourceType.TOPIC, "a/b"), READ, "Failed to create ACL"),
        (Pattern(ResourceType.TOPIC, ".."), READ, "Failed to create ACL"),
        (Pattern(ResourceType.TOPIC, "a\0"), READ, "Failed to create ACL"),
        (Pattern(ResourceType.UNKNOWN, "a"), READ, "Failed to create ACL"),
        (Pattern(ResourceType.TOPIC, "a", PatternType.MATCH), READ, "Failed to create ACL"),
        (ORDERS, READ._replace(operation=Operation.ANY), "Failed to create ACL"),
        (ORDERS, READ._replace(permission=Permission.UNKNOWN), "Failed to create ACL"),
        (ORDERS, READ._replace(principal="alice"), "principalType:principalName"),
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_else_is(
    zookeeper: AclZooKeeper, store: AclStore, pattern: Pattern, entry: Entry, sentence: str
) -> None:
    refused, written = await store.create([Binding(pattern, entry), Binding(ORDERS, WRITE)])
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert sentence in str(refused.message)
    assert written.error is ErrorCode.NONE
    assert decode_list(zookeeper.nodes[PATH][0]) == {WRITE}


async def test_an_unreadable_list_stays_as_it_was_known(zookeeper: AclZooKeeper, store: AclStore) -> None:
    await store.create([Binding(ORDERS, READ)])
    zookeeper.put(PATH, b"rubbish")
    await store.read(ORDERS)
    await store.read_all()
    assert may(store, Operation.READ)
    [outcome] = await store.create([Binding(ORDERS, WRITE)])
    assert outcome.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert zookeeper.nodes[PATH][0] == b"rubbish"


@pytest.mark.parametrize("data", [b"rubbish", b'{"version":2,"acls":[]}', b'{"version":1,"acls":[{"host":"*"}]}'])
async def test_a_broker_does_not_start_on_an_unreadable_list(
    zookeeper: AclZooKeeper, store: AclStore, data: bytes
) -> None:
    """It could deny what the readable lists allow; with a later session the others are followed on."""
    await store.create([Binding(ORDERS, READ)])
    zookeeper.put(PATH, data)
    begun = AclStore(zookeeper, AclAuthorizer(Rules()))  # type: ignore[arg-type] # has what a store uses
    with pytest.raises(TidegaugeError, match=rf"{PATH} can't be read"):
        await begun.read_all()


async def test_a_refusal_is_in_the_audit_log_unless_it_only_filters(
    store: AclStore, caplog: pytest.LogCaptureFixture
) -> None:
    """AclAuthorizer.logAuditMessage."""
    with caplog.at_level("INFO", logger="tidegauge.authorizer"):
        assert not may(store, Operation.ALTER_CONFIGS)
        assert not store.allows(ALICE, Operation.READ, ResourceType.TOPIC, "x", "Metadata", logs=False)
        assert not store.allows_cluster(ALICE, Operation.CREATE, "CreateTopics")
    assert caplog.messages == [
        "Principal = User:alice is Denied Operation = AlterConfigs from host = 10.0.0.1 on resource = "
        "Topic:LITERAL:orders for request = Produce with resourceRefCount = 1",
        "Principal = User:alice is Denied Operation = Create from host = 10.0.0.1 on resource = "
        "Cluster:LITERAL:kafka-cluster for request = CreateTopics with resourceRefCount = 1",
    ]


def test_settings_choose_the_authorizer() -> None:
    assert authorizer_of(parse_broker_settings({})[0]) is None
    texts = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    assert authorizer_of(parse_broker_settings(texts)[0]) is not None
    with pytest.raises(TidegaugeError, match=r"super\.users"):
        authorizer_of(parse_broker_settings({**texts, "super.users": "alice"})[0])
    with pytest.raises(TidegaugeError, match="String must be one of"):
        parse_broker_settings({"authorizer.class.name": "org.example.Mine"})
