"""Where a share group begins (share.auto.offset.reset): the time that is looked up in the log."""

import pytest

from tidegauge_broker.share.settings import EARLIEST, LATEST, reset_time_ms

NOW_MS = 1_000_000_000_000


@pytest.mark.parametrize(
    ("reset", "time_ms"),
    [
        ("latest", LATEST),
        ("earliest", EARLIEST),
        ("by_duration:P1D", NOW_MS - 86_400_000),
        ("by_duration:PT1H2M3S", NOW_MS - 3_723_000),
        ("by_duration:P2DT0.5S", NOW_MS - 172_800_500),
        ("by_duration:PT1.0029S", NOW_MS - 1_002),
        ("by_duration:PT36H", NOW_MS - 129_600_000),
    ],
)
def test_a_duration_is_so_long_before_the_present_time(reset: str, time_ms: int) -> None:
    """ShareGroupAutoOffsetResetStrategy.timestamp, java.time.Duration.parse."""
    assert reset_time_ms(reset, NOW_MS) == time_ms
