"""Throttling of clients: ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager."""

from __future__ import annotations

import math

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.quotas.client_quota import EXPIRES_AFTER_MS, MutationQuota, Mutations, QuotaManagers, RateQuota
from tidegauge_broker.quotas.limits import DEFAULT, QuotaEntity, Sharers
from tidegauge_broker.quotas.stats import Window

NOW_MS = 1_700_000_000_000
ALICE = QuotaEntity("alice", None)


def rate_quota(limit: float, entity: QuotaEntity = ALICE) -> RateQuota:
    quota = RateQuota(Window())
    quota.set(entity, limit)
    return quota


def test_a_client_above_its_rate_is_throttled_until_it_is_down() -> None:
    """12,000 bytes are 1,200 a second over the window of 10 s; at 1,000 a second they are paid after two more.

    As in Kafka the window grows no longer than its missing samples count: a request after the throttle time finds the
    same rate, until the samples leave the window.
    """
    quota = rate_quota(1_000)
    assert quota.record("alice", "a", 10_000, NOW_MS) == 0
    assert quota.record("alice", "a", 2_000, NOW_MS) == 2_000
    assert quota.record("alice", "a", 0, NOW_MS + 2_000) == 2_000
    assert quota.record("alice", "a", 0, NOW_MS + 11_000) == 0


def test_clients_of_a_user_share_its_quota_and_others_are_untouched() -> None:
    quota = rate_quota(1_000)
    assert quota.record("alice", "a", 10_000, NOW_MS) == 0
    assert quota.record("bob", "a", 1_000_000, NOW_MS) == 0
    assert quota.record("alice", "b", 1_000, NOW_MS) == 1_000


def test_each_client_id_has_the_default_for_itself() -> None:
    quota = rate_quota(1_000, QuotaEntity(None, DEFAULT))
    assert quota.record("alice", "a", 10_000, NOW_MS) == 0
    assert quota.record("alice", "b", 10_000, NOW_MS) == 0
    assert quota.record("bob", "b", 1_000, NOW_MS) == 1_000


def test_an_altered_limit_holds_for_what_was_recorded_before() -> None:
    """ClientQuotaManager.updateQuotaMetricConfigs changes the metric's quota, and keeps its samples."""
    quota = rate_quota(1_000)
    assert quota.record("alice", "a", 10_000, NOW_MS) == 0
    quota.set(ALICE, 500)
    assert quota.record("alice", "a", 0, NOW_MS) == 10_000
    quota.set(ALICE, None)
    assert quota.record("alice", "a", 1e9, NOW_MS) == 0


def test_a_request_quota_throttles_for_a_sample_at_most() -> None:
    """KIP-124: the delay of the request quota is bounded by quota.window.size.seconds."""
    quota = QuotaManagers.of(Window(), Window()).request
    quota.set(ALICE, 1)
    assert quota.record("alice", "a", 1_000, NOW_MS) == 1_000


def test_what_may_be_fetched_at_once_is_what_ten_samples_allow() -> None:
    """ClientQuotaManager.getMaxValueInQuotaWindow."""
    quota = rate_quota(1_000)
    assert quota.most_in_window("alice", "a") == 10_000
    assert quota.most_in_window("bob", "a") == math.inf


def test_a_fetch_that_is_not_given_is_taken_back() -> None:
    quota = rate_quota(1_000)
    assert quota.record("alice", "a", 20_000, NOW_MS) == 10_000
    quota.take_back("alice", "a", 20_000, NOW_MS)
    assert quota.record("alice", "a", 10_000, NOW_MS) == 0


def test_the_metrics_are_kafkas() -> None:
    quota = rate_quota(1_000)
    quota.record("alice", "a", 20_000, NOW_MS)
    quota.throttled("alice", "a", 10_000, NOW_MS)
    alice = Sharers("alice", "")
    assert [*quota.readings(NOW_MS)] == [(alice, "byte-rate", 2_000), (alice, "throttle-time", 10_000)]


def test_clients_that_were_idle_for_an_hour_are_forgotten() -> None:
    """ClientQuotaManagerConfig.InactiveSensorExpirationTimeSeconds."""
    quota = rate_quota(1_000)
    quota.record("alice", "a", 1, NOW_MS)
    quota.record("bob", "a", 1, NOW_MS + EXPIRES_AFTER_MS)
    assert {reading.sharers.user for reading in quota.readings(NOW_MS + EXPIRES_AFTER_MS)} == {"bob"}


@pytest.fixture
def mutations() -> MutationQuota:
    """Two a second, with ten seconds' worth at once."""
    quota = MutationQuota(Window(10, 1_000))
    quota.set(ALICE, 2)
    return quota


def of_request(quota: MutationQuota, *, is_strict: bool) -> Mutations:
    return Mutations(quota, "alice", "a", is_strict=is_strict)


def test_a_strict_quota_takes_a_burst_and_refuses_what_comes_after_it(mutations: MutationQuota) -> None:
    """KIP-599: 'the quota is accepted as long as there are tokens left', and then THROTTLING_QUOTA_EXCEEDED."""
    first = of_request(mutations, is_strict=True)
    first.record(30, NOW_MS)
    assert first.throttle_ms(NOW_MS) == 0
    second = of_request(mutations, is_strict=True)
    with pytest.raises(TidegaugeError) as refusal:
        second.record(1, NOW_MS)
    assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refusal.value.message == "The throttling quota has been exceeded."
    assert second.throttle_ms(NOW_MS) == 5_000
    assert second.throttle_ms(NOW_MS + 1_000) == 4_000
    of_request(mutations, is_strict=True).record(1, NOW_MS + 5_000)


def test_within_a_request_a_strict_quota_refuses_the_rest(mutations: MutationQuota) -> None:
    one = of_request(mutations, is_strict=True)
    one.record(21, NOW_MS)
    with pytest.raises(TidegaugeError):
        one.record(1, NOW_MS)
    assert one.throttle_ms(NOW_MS) == 500


def test_a_permissive_quota_takes_all_and_throttles(mutations: MutationQuota) -> None:
    """Clients older than the error are throttled and nothing more."""
    one = of_request(mutations, is_strict=False)
    one.record(30, NOW_MS)
    one.record(2, NOW_MS)
    assert one.throttle_ms(NOW_MS) == 6_000
    assert one.throttle_ms(NOW_MS + 10_000) == 0


def test_a_refused_mutation_takes_no_tokens(mutations: MutationQuota) -> None:
    of_request(mutations, is_strict=True).record(22, NOW_MS)
    for _ in range(3):
        with pytest.raises(TidegaugeError):
            of_request(mutations, is_strict=True).record(5, NOW_MS)
    assert {reading.metric: reading.value for reading in mutations.readings(NOW_MS)}["tokens"] == -2


def test_a_client_without_a_quota_mutates_freely(mutations: MutationQuota) -> None:
    one = Mutations(mutations, "bob", "a", is_strict=True)
    for _ in range(3):
        one.record(1_000_000, NOW_MS)
    assert one.throttle_ms(NOW_MS) == 0
