"""Quotas of ZooKeeper come into force at every broker, and leave it (QuotaConfigHandler)."""

from __future__ import annotations

import pytest
from config_zookeeper import FakeZooKeeper, settle

from tidegauge.settings import BrokerSettings, parse_broker_settings
from tidegauge_broker.quotas.limits import DEFAULT, QuotaEntity
from tidegauge_broker.quotas.stats import Window
from tidegauge_broker.server.cluster.zookeeper.stores import ZooKeeperStores
from tidegauge_broker.server.configs.dynamic_configs import DynamicConfigs


class _Unaffected:
    def topic_settings_changed(self, topic: object, values: object) -> None: ...

    def broker_settings_changed(self) -> None: ...

    def unclean_election_enabled(self, topic: object) -> None: ...

    async def advertise(self) -> None: ...


def configs_of(zookeeper: FakeZooKeeper, **static: str) -> DynamicConfigs:
    values, _ = parse_broker_settings({key.replace("_", "."): text for key, text in static.items()})
    settings = BrokerSettings(values)
    stores = ZooKeeperStores(zookeeper, settings.live, lambda: zookeeper.now_ms)  # type: ignore[arg-type]
    return DynamicConfigs(stores, 0, settings, lambda _: True)


@pytest.fixture
def zookeeper() -> FakeZooKeeper:
    fake = FakeZooKeeper()
    for path in ("/config/users", "/config/clients", "/config/ips"):
        fake.put(path, b"")
    return fake


async def test_all_kinds_and_entities_are_followed(zookeeper: FakeZooKeeper) -> None:
    """UserConfigHandler and ClientIdConfigHandler; names are percent-encoded in paths (Sanitizer)."""
    configs = configs_of(zookeeper)
    await configs.read_all()
    assert not configs.quotas_in_force.are_set
    configs.follow(_Unaffected())
    await settle()
    changes = {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0, "request_percentage": 2.5}
    await configs.quotas.alter({"user": "a b/c"}, changes, validate_only=False)
    await configs.quotas.alter({"client-id": None}, {"controller_mutation_rate": 0.5}, validate_only=False)
    await configs.quotas.alter({"user": None, "client-id": "x"}, {"producer_byte_rate": 7.0}, validate_only=False)
    await settle()
    in_force = configs.quotas_in_force
    assert in_force.are_set
    spaced, pair = QuotaEntity("a b/c", None), QuotaEntity(DEFAULT, "x")
    limits = {name: manager.limits for name, manager in in_force.managers._asdict().items()}
    assert limits["produce"].entities() == {spaced, pair}
    assert limits["fetch"].limit(limits["fetch"].sharers("a b/c", "any")) == 20
    assert limits["request"].limit(limits["request"].sharers("a b/c", "any")) == 2.5
    assert limits["mutation"].entities() == {QuotaEntity(None, DEFAULT)}
    await configs.quotas.alter({"user": "a b/c"}, {"producer_byte_rate": None}, validate_only=False)
    await settle()
    assert limits["produce"].entities() == {pair}
    assert limits["fetch"].entities() == {spaced}
    await configs.close()


async def test_a_broker_that_starts_or_has_a_new_session_reads_all(zookeeper: FakeZooKeeper) -> None:
    """Notifications may have been purged meanwhile: removed quotas hold no longer."""
    writer, broker = configs_of(zookeeper), configs_of(zookeeper)
    await writer.quotas.alter({"user": "a", "client-id": None}, {"producer_byte_rate": 1.0}, validate_only=False)
    await writer.quotas.alter({"client-id": "c"}, {"producer_byte_rate": 2.0}, validate_only=False)
    await broker.read_all()
    produce = broker.quotas_in_force.managers.produce.limits
    assert produce.entities() == {QuotaEntity("a", DEFAULT), QuotaEntity(None, "c")}
    await writer.quotas.alter({"client-id": "c"}, {"producer_byte_rate": None}, validate_only=False)
    await broker.read_all()
    assert produce.entities() == {QuotaEntity("a", DEFAULT)}


async def test_the_windows_are_settings(zookeeper: FakeZooKeeper) -> None:
    """``quota.window.num`` and ``.size.seconds``, and the controller's own ones (KIP-599)."""
    static = {"quota_window_num": "5", "quota_window_size_seconds": "2", "controller_quota_window_num": "3"}
    managers = configs_of(zookeeper, **static).quotas_in_force.managers
    assert managers.produce.window == managers.request.window == Window(5, 2_000)
    assert managers.mutation.window == Window(3, 1_000)


async def test_what_is_unreadable_is_no_quota_and_stops_nothing(
    zookeeper: FakeZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    zookeeper.put("/config/users/a", b'{"version":1,"config":{"producer_byte_rate":"fast"}}')
    zookeeper.put("/config/users/b", b'{"version":1,"config":{"producer_byte_rate":"1"}}')
    configs = configs_of(zookeeper)
    await configs.read_all()
    assert configs.quotas_in_force.managers.produce.limits.entities() == {QuotaEntity("b", None)}
    assert "users/a are unreadable" in caplog.text
