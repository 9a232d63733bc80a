"""How fast connections are accepted (Kafka's ConnectionQuotas; KIP-402, KIP-612)."""

from __future__ import annotations

from itertools import pairwise

from tidegauge.settings import INT_MAX, BrokerSettings, parse_broker_settings
from tidegauge_broker.quotas.stats import Window
from tidegauge_broker.server.wire.connection_rates import ConnectionRates, CreationRate

RATE = "max.connection.creation.rate"
MAX_THROTTLE_MS = 1_000


def test_a_burst_of_ten_times_the_rate_passes_and_is_paid_for_afterwards() -> None:
    """Rate.windowSize takes missing samples for full seconds: N-1 of them at the first connection."""
    quota = CreationRate(Window())
    assert [quota.record(5, 0) for _ in range(50)] == [0] * 50
    assert quota.record(5, 0) == 200, "one connection more than the rate allows in ten seconds: a fifth of a second"
    assert quota.record(5, 0) == 400


def test_a_listener_that_waits_as_long_as_asked_accepts_at_the_rate() -> None:
    quota, now_ms, times = CreationRate(Window()), 0, []
    for _ in range(400):
        now_ms += quota.record(5, now_ms)
        times.append(now_ms)
    late = [later - earlier for earlier, later in pairwise(times[200:])]
    assert 170 <= sum(late) / len(late) <= 230
    assert times[-1] >= (400 - 50) * 1000 / 5 * 0.85


def test_a_throttle_is_at_most_a_second_and_old_samples_are_forgotten() -> None:
    """quota.window.size.seconds bounds it; after eleven seconds of silence the burst is there again."""
    quota = CreationRate(Window())
    throttles = [quota.record(1, 0) for _ in range(100)]
    assert max(throttles) == MAX_THROTTLE_MS
    assert [quota.record(1, 11_000) for _ in range(10)] == [0] * 10
    assert quota.record(1, 11_000) == 1000


def refused(rates: ConnectionRates, address: str, now_ms: int) -> int:
    """Accept a connection of an address at a listener without a limit, and judge it."""
    assert rates.accepted("A", now_ms) == 0
    return rates.refused("A", address, now_ms)


def test_without_a_limit_nothing_is_held_up() -> None:
    rates = ConnectionRates()
    assert not any(rates.accepted("PLAINTEXT", 0) for _ in range(10_000))
    assert not any(refused(rates, "10.0.0.1", 0) for _ in range(10_000))


def test_the_brokers_rate_counts_over_listeners_and_spares_the_inter_broker_one() -> None:
    """ConnectionQuotas.protectedListener."""
    rates = ConnectionRates(of_broker=lambda: 1, protected="GRPC")
    assert [rates.accepted(name, 0) for name in ("A", "B") * 5] == [0] * 10
    assert rates.accepted("A", 0) == rates.accepted("B", 0) / 2 == 500 or rates.accepted("A", 0) > 0
    assert not any(rates.accepted("GRPC", 0) for _ in range(100))


def test_a_listeners_rate_holds_up_that_listener_alone() -> None:
    rates = ConnectionRates(of_listener=lambda name: 1 if name == "A" else INT_MAX)
    assert [rates.accepted("A", 0) for _ in range(10)] == [0] * 10
    assert rates.accepted("A", 0) == 1000
    assert not any(rates.accepted("B", 0) for _ in range(100))


def test_a_connection_above_the_rate_of_its_address_does_not_count() -> None:
    """recordIpConnectionMaybeThrottle takes its record back; so the rate of those that are served is the quota."""
    rates = ConnectionRates(of_address=lambda address: 2 if address == "10.0.0.1" else INT_MAX)
    assert [refused(rates, "10.0.0.1", 0) for _ in range(20)] == [0] * 20
    assert [refused(rates, "10.0.0.1", 0) for _ in range(5)] == [500] * 5
    assert refused(rates, "10.0.0.2", 0) == 0
    assert refused(rates, "10.0.0.1", 11_000) == 0


def test_a_connection_that_is_closed_for_its_address_counts_for_no_listener_either() -> None:
    """updateListenerMetrics takes it back from the listener and, unless that is protected, from the broker."""
    rates = ConnectionRates(
        of_broker=lambda: 3, of_listener=lambda _: 2, of_address=lambda address: 0 if address == "10.0.0.1" else INT_MAX
    )
    for _ in range(100):
        assert rates.accepted("A", 0) == 0
        assert rates.refused("A", "10.0.0.1", 0) == MAX_THROTTLE_MS
    assert [rates.accepted("A", 0) for _ in range(20)] == [0] * 20
    assert rates.accepted("A", 0) == 500


def test_the_window_is_that_of_quotas() -> None:
    """quota.window.num and quota.window.size.seconds: here one sample of two seconds beside the present one."""
    quota = CreationRate(Window(2, 2_000))
    assert [quota.record(5, 0) for _ in range(10)] == [0] * 10
    assert quota.record(5, 0) == 200
    assert max(quota.record(5, 0) for _ in range(20)) == 2_000


def test_a_quota_of_nothing_closes_all_and_does_not_divide_by_it() -> None:
    rates = ConnectionRates(of_address=lambda _address: 0)
    assert refused(rates, "10.0.0.1", 0) == MAX_THROTTLE_MS


def test_a_limit_that_changes_counts_from_the_next_connection_on() -> None:
    limits = [INT_MAX]
    rates = ConnectionRates(of_broker=lambda: limits[0])
    assert not any(rates.accepted("A", 0) for _ in range(100))
    limits[0] = 1
    assert rates.accepted("A", 0) == MAX_THROTTLE_MS
    limits[0] = INT_MAX
    assert rates.accepted("A", 0) == 0


def test_settings_of_listeners_are_known_static_and_dynamic() -> None:
    """``listener.name.NAME.max.connection.creation.rate``; without it a listener has no quota of its own."""
    values, unknown = parse_broker_settings({f"listener.name.internal.{RATE}": "7", "listener.name.x.nonsense": "1"})
    assert unknown == ["listener.name.x.nonsense"]
    settings = BrokerSettings(values)
    assert settings.live.of_listener("INTERNAL", RATE) == 7
    assert settings.live.of_listener("PLAINTEXT", RATE) == INT_MAX
    own = {f"listener.name.internal.{RATE}": "9", RATE: "100"}
    settings.check(own, for_all=False)
    assert settings.replace(default={}, own=own) == []
    assert settings.live.of_listener("INTERNAL", RATE) == 9
    assert settings.live.integer(RATE) == 100
    settings.replace(default={}, own={})
    assert settings.live.of_listener("INTERNAL", RATE) == 7
