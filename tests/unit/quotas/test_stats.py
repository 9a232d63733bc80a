"""Rates over samples and token buckets, with Kafka's arithmetic (Rate, SampledStat, TokenBucket, QuotaUtils)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge_broker.quotas.stats import (
    TokenBucket,
    Window,
    WindowedAverage,
    WindowedRate,
    java_round,
    refill_ms,
    throttle_ms,
    to_int,
)

NOW_MS = 1_700_000_000_000


def test_a_young_rate_is_that_of_the_whole_window_but_one_sample() -> None:
    """Rate.windowSize: missing samples count in full, so that a first burst makes no enormous rate."""
    rate = WindowedRate(Window(11, 1_000))
    rate.record(5_000, NOW_MS)
    assert rate.window_ms(NOW_MS) == 10_000
    assert rate.measure(NOW_MS) == 500
    assert rate.measure(NOW_MS + 400) == pytest.approx(5_000 / 10.4)


def test_values_leave_the_rate_when_their_sample_has_left_the_window() -> None:
    """SampledStat.purgeObsoleteSamples: a sample stays as long as its last value lies within the window."""
    rate = WindowedRate(Window(11, 1_000))
    rate.record(1_000, NOW_MS)
    rate.record(1_000, NOW_MS + 900)
    assert rate.measure(NOW_MS + 11_899) == pytest.approx(2_000 / 11.899)
    assert rate.measure(NOW_MS + 11_900) == 0


def test_what_is_taken_back_was_never_there() -> None:
    """ClientQuotaManager.unrecordQuotaSensor records the negative value."""
    rate = WindowedRate(Window())
    rate.record(7_000, NOW_MS)
    rate.record(9_000, NOW_MS + 10)
    rate.record(-9_000, NOW_MS + 10)
    assert rate.measure(NOW_MS + 10) == pytest.approx(7_000 / 10.01)


WINDOWS = st.builds(Window, st.integers(1, 12), st.sampled_from([1_000, 2_000]))
STEPS = st.lists(st.tuples(st.integers(0, 20_000) | st.integers(0, 1_500), st.integers(0, 10_000)), max_size=40)


@given(WINDOWS, STEPS)
@hypothesis_settings(max_examples=examples(300), deadline=None)
def test_a_twin_that_keeps_every_value_measures_the_same_rate(window: Window, steps: list[tuple[int, int]]) -> None:
    """The twin divides all values into samples at each look: one begins with a value, and ends after its time."""
    rate, values, now_ms = WindowedRate(window), list[tuple[int, int]](), NOW_MS
    for wait_ms, value in steps:
        now_ms += wait_ms
        rate.record(value, now_ms)
        values.append((now_ms, value))
        samples: list[list[tuple[int, int]]] = []
        for at_ms, one in values:
            if not samples or at_ms - samples[-1][0][0] >= window.sample_ms:
                samples.append([])
            samples[-1].append((at_ms, one))
        age_ms = window.sample_count * window.sample_ms
        live = [sample for sample in samples if now_ms - sample[-1][0] < age_ms]
        elapsed_ms = now_ms - live[0][0][0]
        missing = max(0, window.sample_count - 1 - elapsed_ms // window.sample_ms)
        window_ms = max(1, elapsed_ms + missing * window.sample_ms)
        assert rate.window_ms(now_ms) == window_ms
        assert rate.measure(now_ms) == sum(one for sample in live for _, one in sample) / (window_ms / 1000)


def test_an_average_is_nan_before_there_is_anything_and_after_it_has_left() -> None:
    """Avg over the two samples of 30 s of Kafka's metrics; NaN as Kafka's own."""
    average = WindowedAverage()
    assert math.isnan(average.measure(NOW_MS))
    average.record(100, NOW_MS)
    average.record(300, NOW_MS + 5)
    assert average.measure(NOW_MS + 10) == 200
    assert math.isnan(average.measure(NOW_MS + 60_005))


def test_a_bucket_refills_as_the_comment_of_token_bucket_says() -> None:
    """Quota 5, 100 samples of a second: a burst of 560 leaves -60 tokens, and 12 s bring them to zero."""
    bucket = TokenBucket(Window(100, 1_000))
    assert bucket.measure(5, NOW_MS) == 500
    bucket.record(560, 5, NOW_MS)
    assert bucket.measure(5, NOW_MS) == -60
    assert refill_ms(-60, 5) == 12_000
    assert bucket.measure(5, NOW_MS + 12_000) == 0
    assert bucket.measure(5, NOW_MS + 1_000_000) == 500


def test_a_smaller_quota_makes_the_bucket_smaller_at_once() -> None:
    bucket = TokenBucket(Window(10, 1_000))
    assert bucket.measure(100, NOW_MS) == 1_000
    assert bucket.measure(1, NOW_MS) == 10


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 50)), max_size=40), st.sampled_from([1.0, 8.0, 0.5]))
@hypothesis_settings(max_examples=examples(200), deadline=None)
def test_a_twin_that_counts_in_whole_steps_has_as_many_tokens(steps: list[tuple[int, int]], limit: float) -> None:
    """The twin gives tokens ms by ms, in units of which none is lost."""
    bucket, now_ms = TokenBucket(Window(10, 1_000)), NOW_MS
    burst = int(10 * limit * 2_000)
    tokens = burst
    for wait_ms, count in steps:
        now_ms += wait_ms
        bucket.record(count, limit, now_ms)
        tokens = min(burst, tokens + int(limit * 2) * wait_ms) - count * 2_000
        assert bucket.measure(limit, now_ms) == pytest.approx(tokens / 2_000, abs=1e-6)


def test_the_throttle_time_brings_the_rate_down_to_the_limit() -> None:
    """QuotaUtils.throttleTime: (O - T) / T * W, rounded half up."""
    assert throttle_ms(600, 500, 10_000) == 2_000
    assert throttle_ms(500.00005, 500, 10_000) == 0
    assert throttle_ms(1, 0, 10_000) == 2**63 - 1


def test_an_endless_throttle_time_is_none_as_in_kafka() -> None:
    """With a limit of 0, ``Math.round(Infinity).toInt`` is -1, and only a time above 0 throttles."""
    assert to_int(2**63 - 1) == -1
    assert to_int(2**31) == -(2**31)
    assert to_int(1_234) == 1_234


def test_halves_are_rounded_up() -> None:
    assert [java_round(value) for value in (0.5, 1.5, 2.4, -0.5, -1.5)] == [1, 2, 2, 0, -1]


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        *((1.5, 2), (-1.5, -1), (0.49, 0)),
        *((math.nan, 0), (math.inf, 2**63 - 1), (-math.inf, -(2**63)), (1e300, 2**63 - 1), (-1e300, -(2**63))),
    ],
)
def test_numbers_are_rounded_as_by_math_round(value: float, rounded: int) -> None:
    assert java_round(value) == rounded


@pytest.mark.parametrize("limit", [math.nan, -math.inf])
def test_a_quota_that_is_no_number_throttles_no_client(limit: float) -> None:
    """Kafka takes any number as request_percentage, and makes no throttle time of these (QuotaUtils.throttleTime)."""
    assert throttle_ms(3.0, limit, 11_000) == 0
