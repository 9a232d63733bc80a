"""Registration, heartbeats, fencing and controlled shutdown of brokers, as KRaft's controller decides them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.metadata.cluster_world import CLUSTER_ID, FEATURES, SESSION_MS, World, directory

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions import brokers, registration
from tidegauge_controller.metadata.decisions.partitions import assign_replicas_to_directories
from tidegauge_controller.metadata.decisions.view import ControllerSettings
from tidegauge_controller.metadata.image import FeatureRange, RegisteredController

REFUSED_REGISTRATIONS: dict[str, tuple[dict[str, Any], ErrorCode, str]] = {
    "another cluster": (
        {"cluster_id": "other"},
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        f"Expected cluster ID {CLUSTER_ID}, but got cluster ID other",
    ),
    "ZooKeeper's flag": (
        {"is_migrating_zk_broker": True},
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Controller does not support registering ZK brokers.",
    ),
    "no directory": ({"log_dirs": ()}, ErrorCode.INVALID_REGISTRATION, "No directories specified in request"),
    "a reserved directory": (
        {"log_dirs": ("AAAAAAAAAAAAAAAAAAAAYw",)},
        ErrorCode.INVALID_REGISTRATION,
        "Reserved directory ID in request",
    ),
    "a directory twice": (
        {"log_dirs": (directory(9), directory(9))},
        ErrorCode.INVALID_REGISTRATION,
        "Duplicate directory ID in request",
    ),
    "another's directory": (
        {"log_dirs": (directory(1),)},
        ErrorCode.INVALID_REGISTRATION,
        f"Broker 1 is already registered with directory {directory(1)}",
    ),
    "no metadata.version": (
        {"features": {"kraft.version": FeatureRange(0, 1), "eligible.leader.replicas.version": FeatureRange(0, 1)}},
        ErrorCode.INVALID_REGISTRATION,
        "Request features do not contain 'metadata.version'",
    ),
    "no kraft.version": (
        {"features": {name: levels for name, levels in FEATURES.items() if name != "kraft.version"}},
        ErrorCode.UNSUPPORTED_VERSION,
        "Unable to register because the broker does not support finalized version 1 of kraft.version. The broker "
        "wants a version between 0 and 0, inclusive.",
    ),
    "metadata.version up to 29": (
        {"features": {**FEATURES, "metadata.version": FeatureRange(7, 29)}},
        ErrorCode.UNSUPPORTED_VERSION,
        "Unable to register because the broker does not support finalized version 30 of metadata.version. The broker "
        "wants a version between 7 and 29, inclusive.",
    ),
    "a minimum above a feature that is off": (
        {"features": {**FEATURES, "share.version": FeatureRange(1, 1)}},
        ErrorCode.UNSUPPORTED_VERSION,
        "Unable to register because the broker does not support finalized version 0 of share.version. The broker "
        "wants a version between 1 and 1, inclusive.",
    ),
}


@pytest.mark.parametrize("name", REFUSED_REGISTRATIONS)
def test_a_registration_is_refused(name: str) -> None:
    """ClusterControlManager.registerBroker."""
    fields, error, sentence = REFUSED_REGISTRATIONS[name]
    world = World()
    with pytest.raises(TidegaugeError) as refusal:
        world.register(9, **fields)
    assert (refusal.value.code, refusal.value.message) == (error, sentence)
    assert 9 not in world.view.image.brokers


def test_ranges_of_exactly_the_finalised_levels_are_accepted() -> None:
    world = World()
    exact = {
        "metadata.version": FeatureRange(30, 30),
        "kraft.version": FeatureRange(1, 1),
        "eligible.leader.replicas.version": FeatureRange(1, 1),
    }
    world.register(9, features=exact)
    assert world.view.image.brokers[9].features == exact


def test_the_cluster_is_checked_before_the_session_and_the_session_before_the_rest() -> None:
    world = World()
    for fields, error in (
        ({"cluster_id": "other", "log_dirs": ()}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"is_migrating_zk_broker": True, "log_dirs": ()}, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ):
        with pytest.raises(TidegaugeError) as refusal:
            world.register(0, **fields)
        assert refusal.value.code is error


def test_a_new_incarnation_waits_for_the_end_of_the_session() -> None:
    world = World()
    world.now_ms += SESSION_MS - 1
    with pytest.raises(TidegaugeError, match="Another broker is registered with that broker id"):
        world.register(0)
    world.now_ms += 1
    assert world.register(0)


def test_the_same_incarnation_keeps_its_epoch_and_its_flags() -> None:
    world = World()
    world.heartbeat(0, cordoned_log_dirs=())
    known = world.view.image.brokers[0]
    world.register(0, incarnation_id=known.incarnation_id, rack="r1")
    again = world.view.image.brokers[0]
    assert (again.epoch, again.fenced, again.rack) == (known.epoch, False, "r1")
    assert again.cordoned_log_dirs is None


def test_a_broker_epoch_is_the_offset_of_the_first_record() -> None:
    """The clean-up of the former incarnation comes first; unfencing waits for the registration's own offset."""
    world = World()
    world.create("t", [0, 1, 2])
    world.now_ms += SESSION_MS
    first = world.controller.next_offset
    records = world.register(0)
    assert [record.type.label for record in records] == ["PARTITION_CHANGE_RECORD", "REGISTER_BROKER_RECORD"]
    broker = world.view.image.brokers[0]
    assert (broker.epoch, broker.registration_offset, broker.fenced) == (first, first + 1, True)
    assert world.heartbeat(0, first).is_fenced
    response = world.heartbeat(0, first + 1)
    assert (response.is_caught_up, response.is_fenced) == (True, False)


def test_an_unclean_restart_leaves_the_elr_and_a_clean_one_stays() -> None:
    for is_clean, elr in ((False, ()), (True, (1,))):
        world = World()
        world.create("t", [0, 1], configs={"min.insync.replicas": "2"})
        epoch = world.epoch(1)
        world.fence(1)
        assert world.state().elr == (1,)
        world.now_ms += SESSION_MS
        world.register(1, previous_broker_epoch=epoch if is_clean else -1)
        assert world.state().elr == elr


def test_a_broker_that_was_unregistered_comes_back_as_after_an_unclean_shutdown() -> None:
    world = World()
    world.create("t", [0, 1], configs={"min.insync.replicas": "2"})
    epoch = world.epoch(1)
    world.take(brokers.unregister(world.view, 1))
    assert (world.state().isr, world.state().elr) == ((0,), (1,))
    world.register(1, previous_broker_epoch=epoch)
    assert world.state().elr == ()


def test_a_broker_that_was_unregistered_while_it_serves_has_its_heartbeats_refused() -> None:
    """BrokerHeartbeatManager, Kafka's rule: it goes on by what it knows, until it is restarted and registers."""
    world = World()
    request = brokers.HeartbeatRequest(1, world.epoch(1), world.controller.next_offset)
    world.take(brokers.unregister(world.view, 1))
    with pytest.raises(TidegaugeError) as refusal:
        brokers.heartbeat(world.view, world.controller.heartbeats, request)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_an_unknown_broker_can_not_be_unregistered() -> None:
    with pytest.raises(TidegaugeError, match="Broker ID 9 is not currently registered") as refusal:
        brokers.unregister(World().view, 9)
    assert refusal.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_heartbeat_of_another_epoch_is_refused() -> None:
    world = World()
    for broker_id, epoch, sentence in (
        (0, 1, f"Expected broker epoch {world.epoch(0)}, but got broker epoch 1"),
        (9, 1, "No broker registration found for broker id 9"),
    ):
        request = brokers.HeartbeatRequest(broker_id, epoch, 99)
        with pytest.raises(TidegaugeError, match=sentence) as refusal:
            brokers.heartbeat(world.view, world.controller.heartbeats, request)
        assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def labels(world: World, broker_id: int, **fields: Any) -> tuple[list[str], brokers.HeartbeatResponse]:
    begin = world.controller.next_offset
    response = world.heartbeat(broker_id, **fields)
    return [str(offset) for offset in range(begin, world.controller.next_offset)], response


def test_a_fenced_broker_is_granted_its_shutdown_at_once() -> None:
    world = World()
    world.fence(0)
    records, response = labels(world, 0, want_shut_down=True)
    assert (len(records), response.is_fenced, response.should_shut_down) == (1, True, True)


def test_a_broker_may_ask_to_be_fenced() -> None:
    world = World()
    world.create("t", [0, 1])
    response = world.heartbeat(0, want_fence=True)
    assert (response.is_fenced, response.should_shut_down) == (True, False)
    assert (world.state().leader, world.view.image.brokers[0].fenced) == (1, True)
    stays = world.heartbeat(0, want_fence=True)
    assert stays.is_fenced


def test_a_new_process_of_a_broker_that_was_fenced_by_request_is_no_duplicate() -> None:
    """The lab ends a dead broker's membership by such a heartbeat; a session that went on would hold its restart up."""
    world = World()
    with pytest.raises(TidegaugeError, match="Another broker is registered"):
        world.register(0, incarnation_id="AAAAAAAAAAAAAAAAAAAABw")
    world.heartbeat(0, want_fence=True)
    world.register(0, incarnation_id="AAAAAAAAAAAAAAAAAAAABw")


def test_a_broker_that_starts_and_asks_to_stay_fenced_keeps_its_session() -> None:
    """While it catches up no other process may register under its id (BrokerHeartbeatManager)."""
    world = World()
    world.fence(0)
    world.heartbeat(0, want_fence=True)
    with pytest.raises(TidegaugeError, match="Another broker is registered"):
        world.register(0, incarnation_id="AAAAAAAAAAAAAAAAAAAABw")


def test_a_broker_that_wants_both_stops_at_once() -> None:
    world = World()
    world.create("t", [0, 1])
    response = world.heartbeat(0, want_fence=True, want_shut_down=True)
    assert (response.is_fenced, response.should_shut_down, response.begins_shutdown) == (True, True, False)


def test_a_broker_that_leads_nothing_stops_at_once_without_controlled_shutdown() -> None:
    world = World()
    world.create("t", [0, 1])
    response = world.heartbeat(1, want_shut_down=True)
    assert response.should_shut_down
    broker = world.view.image.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown) == (True, False)
    assert world.state().isr == (0,)


def test_a_controlled_shutdown_waits_until_every_active_broker_knows_the_new_leaders() -> None:
    """BrokerHeartbeatManager: the offset of the event's last record against the lowest that they report."""
    world = World()
    world.create("t", [0, 1])
    first = world.heartbeat(0, want_shut_down=True)
    assert (first.should_shut_down, first.is_fenced) == (False, False)
    assert world.view.image.brokers[0].in_controlled_shutdown
    assert world.state().leader == 1
    last = world.controller.next_offset - 1
    world.create("later", [1])
    world.heartbeat(1, last)
    world.heartbeat(2, last - 1)
    assert not world.heartbeat(0, want_shut_down=True).should_shut_down
    world.heartbeat(2, last)
    second = world.heartbeat(0, want_shut_down=True)
    assert (second.should_shut_down, second.is_fenced) == (True, True)
    assert world.view.image.brokers[0].fenced


def test_a_controlled_shutdown_takes_the_last_leader_away() -> None:
    """Unlike a controller in ZooKeeper mode, which leaves the last replica leader."""
    world = World([0])
    world.create("t", [0])
    world.heartbeat(0, want_shut_down=True)
    assert (world.state().leader, world.state().isr, world.state().elr) == (-1, (), (0,))
    assert world.heartbeat(0, want_shut_down=True).should_shut_down


def test_a_broker_in_controlled_shutdown_that_changes_its_mind_is_given_no_leadership() -> None:
    world = World()
    world.create("t", [0])
    world.heartbeat(0, want_shut_down=True)
    world.fence(0)
    assert not world.heartbeat(0).is_fenced
    assert world.state().leader == -1


def test_brokers_are_fenced_one_by_one_when_their_sessions_end() -> None:
    world = World()
    world.create("t", [0, 1, 2])
    world.now_ms += 1
    world.heartbeat(1)
    world.now_ms += SESSION_MS - 1
    fenced = []
    while True:
        decision = brokers.fence_one_stale_broker(world.view, world.controller.heartbeats, world.now_ms)
        world.take(decision)
        if not decision.response:
            break
        fenced = [one.broker_id for one in world.view.image.brokers.values() if one.fenced]
    assert fenced == [0, 2]
    assert (world.state().leader, world.state().isr) == (1, (1,))


def test_a_session_of_a_former_incarnation_fences_no_one() -> None:
    world = World()
    world.now_ms += SESSION_MS
    world.start(0)
    expired = []
    for _ in range(3):
        decision = brokers.fence_one_stale_broker(world.view, world.controller.heartbeats, world.now_ms)
        expired.append((len(decision.records), decision.response))
    assert expired == [(0, True), (1, True), (1, True)]
    assert brokers.fence_one_stale_broker(world.view, world.controller.heartbeats, world.now_ms).response is False


def test_a_new_controller_gives_brokers_that_are_not_fenced_a_whole_session() -> None:
    world = World()
    world.fence(0)
    settings = ControllerSettings(3001, CLUSTER_ID, session_timeout_ms=SESSION_MS)
    later = ActiveController(settings, world.controller.committed, 2, world.controller.next_offset, 50_000)
    for broker_id, is_valid in ((0, False), (1, True)):
        epoch = world.epoch(broker_id)
        assert later.heartbeats.has_valid_session(broker_id, epoch, 50_000 + SESSION_MS - 1) is is_valid
        assert not later.heartbeats.has_valid_session(broker_id, epoch, 50_000 + SESSION_MS)


def test_a_heartbeat_that_waited_too_long_keeps_the_broker_alive_and_changes_nothing() -> None:
    world = World()
    world.fence(0)
    request = brokers.HeartbeatRequest(0, world.epoch(0), 10_000)
    brokers.expired_heartbeat(world.view, world.controller.heartbeats, request)
    assert world.view.image.brokers[0].fenced
    assert world.controller.heartbeats.brokers[0].metadata_offset == 10_000


def test_a_failed_directory_moves_its_leaders_away_and_is_no_longer_registered() -> None:
    world = World(directories=2)
    world.create("t", [0, 1], [0, 2])
    world.create("u", [0, 1])
    for name, partition, number in (("t", 0, 0), ("t", 1, 1), ("u", 0, 0)):
        wanted = {directory(0, number): [(world.topic_id(name), partition)]}
        world.take(assign_replicas_to_directories(world.view, 0, world.epoch(0), wanted))
    world.heartbeat(0, offline_log_dirs=(directory(0, 0), directory(7)))
    assert world.view.image.brokers[0].log_dirs == (directory(0, 1),)
    assert [world.state("t", 0).leader, world.state("t", 1).leader, world.state("u").leader] == [1, 0, 1]
    begin = world.controller.next_offset
    world.heartbeat(0, offline_log_dirs=(directory(0, 0),))
    assert world.controller.next_offset == begin


def test_a_broker_that_is_unfenced_with_a_failed_directory_leads_nothing_in_it() -> None:
    world = World([0], directories=2)
    world.create("t", [0])
    wanted = {directory(0): [(world.topic_id(), 0)]}
    world.take(assign_replicas_to_directories(world.view, 0, world.epoch(0), wanted))
    world.fence(0)
    world.heartbeat(0, offline_log_dirs=(directory(0),))
    assert (world.state().leader, world.view.image.brokers[0].fenced) == (-1, False)


def test_cordoned_directories_are_recorded_once_and_only_at_metadata_version_30() -> None:
    for level, recorded in ((30, 1), (29, 0)):
        world = World(metadata_version=level)
        begin = world.controller.next_offset
        world.heartbeat(0, cordoned_log_dirs=(directory(0),))
        world.heartbeat(0, cordoned_log_dirs=(directory(0),))
        assert world.controller.next_offset - begin == recorded


def test_a_controller_registers_again_when_its_process_is_new() -> None:
    world = World()
    incarnation = directory(60)
    assert registration.needs_registration(None, incarnation)
    found = RegisteredController(3000, incarnation, (), {})
    world.take(registration.register_controller(found))
    registered = world.view.image.controllers[3000]
    assert not registration.needs_registration(registered, incarnation)
    assert registration.needs_registration(registered, directory(61))


def test_a_broker_whose_registration_changed_is_waited_for_until_its_next_heartbeat() -> None:
    """ClusterControlManager.replay forgets what it has reported: only its next heartbeat says what it knows.

    Seen at a controller of Apache Kafka 4.3.1: a broker that was just unfenced delays the shutdown of another one.
    """
    world = World([0, 1])
    world.create("t", [0, 1])
    assert not world.heartbeat(0, 10**9, want_shut_down=True).should_shut_down
    assert not world.heartbeat(0, 10**9, want_shut_down=True).should_shut_down
    world.heartbeat(1, 10**9)
    assert world.heartbeat(0, 10**9, want_shut_down=True).should_shut_down
