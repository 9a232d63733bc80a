"""Quotas and SCRAM credentials in ZooKeeper: refusals, writes, and the matches of a filter."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest
from config_zookeeper import FakeZooKeeper

from tidegauge.cluster_metadata.client_quotas import ANY_NAME, Filter
from tidegauge.cluster_metadata.credentials import Deletion, Upsertion
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import INT_MAX
from tidegauge_broker.server.cluster.zookeeper.client_quotas import ClientQuotas
from tidegauge_broker.server.cluster.zookeeper.scram_users import ScramUsers
from tidegauge_broker.server.configs.address_quotas import AddressQuotas


@pytest.fixture
def zookeeper() -> FakeZooKeeper:
    fake = FakeZooKeeper()
    for path in ("/config/users", "/config/clients", "/config/ips"):
        fake.put(path, b"")
    return fake


def config(zookeeper: FakeZooKeeper, path: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(zookeeper.nodes[path][0])["config"]
    return found


async def test_quotas_stand_where_kafka_looks_for_them(zookeeper: FakeZooKeeper) -> None:
    """AdminZkClient: users/U, clients/C, users/U/clients/C, ips/A; names encoded, <default> for None."""
    quotas = ClientQuotas(zookeeper)
    for entity, key, value in (
        ({"user": "a b"}, "producer_byte_rate", 1e9),
        ({"client-id": None}, "request_percentage", 1e7),
        ({"user": "a", "client-id": "c"}, "consumer_byte_rate", 5.0),
        ({"ip": "10.0.0.1"}, "connection_creation_rate", 7.0),
    ):
        await quotas.alter(entity, {key: value}, validate_only=False)
    assert config(zookeeper, "/config/users/a%20b") == {"producer_byte_rate": "1000000000"}
    assert config(zookeeper, "/config/clients/<default>") == {"request_percentage": "1.0E7"}
    assert config(zookeeper, "/config/users/a/clients/c") == {"consumer_byte_rate": "5"}
    assert config(zookeeper, "/config/ips/10.0.0.1") == {"connection_creation_rate": "7"}
    changes = [
        json.loads(data)["entity_path"] for path, (data, _) in zookeeper.nodes.items() if "config_change_" in path
    ]
    assert changes == ["users/a%20b", "clients/<default>", "users/a/clients/c", "ips/10.0.0.1"]


async def test_an_alteration_keeps_what_it_does_not_name(zookeeper: FakeZooKeeper) -> None:
    quotas = ClientQuotas(zookeeper)
    await quotas.alter({"client-id": "c"}, {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}, validate_only=False)
    await quotas.alter({"client-id": "c"}, {"producer_byte_rate": None}, validate_only=False)
    assert config(zookeeper, "/config/clients/c") == {"consumer_byte_rate": "2"}
    await quotas.alter({"client-id": "c"}, {"consumer_byte_rate": 9.0}, validate_only=True)
    assert config(zookeeper, "/config/clients/c") == {"consumer_byte_rate": "2"}


@pytest.mark.parametrize(
    ("entity", "changes", "sentence"),
    [
        ({}, {}, "Invalid empty client quota entity"),
        ({"group": "g"}, {}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {}, "Empty user not supported"),
        ({"ip": "10.0.0.1", "user": "a"}, {}, "IP entity should not be used with user/client ID entity"),
        ({"ip": "no address."}, {}, r"no%20address\. is not a valid IP or resolvable host"),
        ({"user": "a"}, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "Configuration producer_byte_rate must be a LONG value"),
        ({"user": "a"}, {"producer_byte_rate": -1.0}, "Configuration producer_byte_rate must be a LONG value"),
        ({"ip": None}, {"connection_creation_rate": 2.0**31}, "connection_creation_rate must be a INT value"),
    ],
)
async def test_what_kafka_refuses_is_refused(
    zookeeper: FakeZooKeeper, entity: dict[str, str | None], changes: dict[str, float | None], sentence: str
) -> None:
    """ZkAdminManager.alterClientQuotas; the sentences are a 3.9.1 broker's."""
    before = dict(zookeeper.nodes)
    with pytest.raises(TidegaugeError, match=sentence) as caught:
        await ClientQuotas(zookeeper).alter(entity, changes, validate_only=False)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert zookeeper.nodes == before


@pytest.mark.parametrize(
    ("wanted", "strict", "found"),
    [
        ({}, False, ["c", "i", "u", "uc", "ud"]),
        ({}, True, []),
        ({"user": "a"}, False, ["u", "uc"]),
        ({"user": "a"}, True, ["u"]),
        ({"user": None}, False, ["ud"]),
        ({"user": ANY_NAME}, True, ["u", "ud"]),
        ({"user": ANY_NAME, "client-id": ANY_NAME}, False, ["uc"]),
        ({"client-id": "c"}, False, ["c", "uc"]),
        ({"ip": ANY_NAME}, False, ["i"]),
        ({"user": "nobody"}, False, []),
    ],
)
async def test_a_filter_finds_what_has_its_types(
    zookeeper: FakeZooKeeper, wanted: Filter, strict: bool, found: list[str]
) -> None:
    """Rule 3, as ZkAdminManager.handleDescribeClientQuotas has it."""
    quotas = ClientQuotas(zookeeper)
    entities: dict[str, dict[str, str | None]] = {
        "u": {"user": "a"},
        "ud": {"user": None},
        "c": {"client-id": "c"},
        "uc": {"user": "a", "client-id": "c"},
    }
    for entity in entities.values():
        await quotas.alter(entity, {"producer_byte_rate": 1.0}, validate_only=False)
    entities["i"] = {"ip": "10.0.0.1"}
    await quotas.alter(entities["i"], {"connection_creation_rate": 1.0}, validate_only=False)
    described = [quota.entity for quota in await quotas.describe(wanted, strict=strict)]
    assert sorted(name for name, entity in entities.items() if entity in described) == found
    assert len(described) == len(found)


async def test_an_unreadable_znode_hides_its_own_quotas_only(zookeeper: FakeZooKeeper) -> None:
    quotas = ClientQuotas(zookeeper)
    await quotas.alter({"user": "a"}, {"producer_byte_rate": 1.0}, validate_only=False)
    zookeeper.put("/config/users/b", b"garbage")
    zookeeper.put("/config/users/c", b'{"version":1,"config":{"producer_byte_rate":"x"}}')
    assert [quota.entity for quota in await quotas.describe({}, strict=False)] == [{"user": "a"}]


SECRET = b"p" * 32


def upsertion(user: str, mechanism: int = 1, iterations: int = 4_096) -> Upsertion:
    return Upsertion(user, mechanism, iterations, b"salt", SECRET)


async def test_a_credential_is_written_as_kafka_writes_it(zookeeper: FakeZooKeeper) -> None:
    """RFC 5802: the keys of the salted password, not the password; ScramCredentialUtils.credentialToString."""
    users = ScramUsers(zookeeper)
    await users.alter([], [upsertion("a")])
    written = config(zookeeper, "/config/users/a")["SCRAM-SHA-256"]
    parts = dict(part.split("=", 1) for part in written.split(","))
    client_key = hmac.digest(SECRET, b"Client Key", "sha256")
    assert list(parts) == ["salt", "stored_key", "server_key", "iterations"]
    assert base64.b64decode(parts["salt"]) == b"salt"
    assert base64.b64decode(parts["stored_key"]) == hashlib.sha256(client_key).digest()
    assert base64.b64decode(parts["server_key"]) == hmac.digest(SECRET, b"Server Key", "sha256")
    assert parts["iterations"] == "4096"
    assert (await users.describe([]))["a"].iterations == {1: 4_096}


async def test_one_fault_refuses_all_of_a_user_and_no_other(zookeeper: FakeZooKeeper) -> None:
    """Rule 1, with the errors of ZkAdminManager.alterUserScramCredentials."""
    outcomes = await ScramUsers(zookeeper).alter(
        [Deletion("gone", 1)],
        [
            upsertion("few", iterations=4_095),
            upsertion("few", 2),
            upsertion("many", iterations=16_385),
            upsertion("odd", 9),
            upsertion("twice"),
            upsertion("twice"),
            upsertion(""),
            upsertion("good", iterations=16_384),
        ],
    )
    assert {user: (outcome.error.name, outcome.message) for user, outcome in outcomes.items()} == {
        "gone": ("RESOURCE_NOT_FOUND", "Attempt to delete a user credential that does not exist"),
        "few": ("UNACCEPTABLE_CREDENTIAL", "Too few iterations"),
        "many": ("UNACCEPTABLE_CREDENTIAL", "Too many iterations"),
        "odd": ("UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism"),
        "twice": ("DUPLICATE_RESOURCE", "A user credential cannot be altered twice in the same request"),
        "": ("UNACCEPTABLE_CREDENTIAL", "Username must not be empty"),
        "good": ("NONE", ""),
    }
    assert list(await ScramUsers(zookeeper).describe([])) == ["good"]


async def test_a_user_that_no_znode_can_be_named_after_leaves_others_as_they_are(zookeeper: FakeZooKeeper) -> None:
    """Kafka gives UNKNOWN_SERVER_ERROR, to all users of the request if it alters credentials."""
    users = ScramUsers(zookeeper)
    outcomes = await users.alter([], [upsertion(".."), upsertion("good")])
    assert {user: outcome.error.name for user, outcome in outcomes.items()} == {
        "..": "UNKNOWN_SERVER_ERROR",
        "good": "NONE",
    }
    described = await users.describe(["..", "good"])
    assert [outcome.error.name for outcome in described.values()] == ["UNKNOWN_SERVER_ERROR", "NONE"]


async def test_credentials_and_quotas_of_a_user_share_a_znode(zookeeper: FakeZooKeeper) -> None:
    users, quotas = ScramUsers(zookeeper), ClientQuotas(zookeeper)
    await users.alter([], [upsertion("a"), upsertion("a", 2)])
    await quotas.alter({"user": "a"}, {"producer_byte_rate": 1.0}, validate_only=False)
    await users.alter([Deletion("a", 1)], [])
    assert sorted(config(zookeeper, "/config/users/a")) == ["SCRAM-SHA-512", "producer_byte_rate"]
    described = await users.describe(["a", "nobody"])
    assert described["a"].iterations == {2: 4_096}
    assert described["nobody"].error is ErrorCode.RESOURCE_NOT_FOUND
    [quota] = await quotas.describe({}, strict=False)
    assert quota.values == {"producer_byte_rate": 1.0}


async def test_the_rate_of_connections_of_an_address_its_default_and_none(zookeeper: FakeZooKeeper) -> None:
    """ConnectionQuotas.connectionRateForIp: an address's own quota, else the default, else none."""
    quotas = ClientQuotas(zookeeper)
    addresses = AddressQuotas(quotas)
    await addresses.read()
    assert addresses.rate_of("10.0.0.1") == INT_MAX
    await quotas.alter({"ip": "10.0.0.1"}, {"connection_creation_rate": 7.0}, validate_only=False)
    await quotas.alter({"ip": None}, {"connection_creation_rate": 3.0}, validate_only=False)
    await addresses.read()
    assert [addresses.rate_of(one) for one in ("10.0.0.1", "10.0.0.2")] == [7, 3]
    await quotas.alter({"ip": "10.0.0.1"}, {"connection_creation_rate": None}, validate_only=False)
    await quotas.alter({"ip": None}, {"connection_creation_rate": None}, validate_only=False)
    await addresses.read()
    assert [addresses.rate_of(one) for one in ("10.0.0.1", "10.0.0.2")] == [INT_MAX, INT_MAX]
