"""The sentences of ``consume`` about a group that cannot be joined."""

from __future__ import annotations

from typing import NamedTuple, cast

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cli import consume
from tidegauge_client.group.group_consumer import GroupConsumer


class Metadata(NamedTuple):
    """Of which group a consumer is."""

    group_id: str


class Outside(GroupConsumer):
    """A consumer that cannot join its group."""

    def __init__(self) -> None:
        self.trouble: TidegaugeError | None = None

    def take_notices(self) -> list[str]:
        return []

    def troubles(self) -> dict[object, TidegaugeError]:  # type: ignore[override]
        return {}

    def group_trouble(self) -> TidegaugeError | None:
        return self.trouble

    def group_metadata(self) -> Metadata:  # type: ignore[override]
        return Metadata("shop")


NOT_YET = TidegaugeError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")


@pytest.mark.parametrize(
    ("timeout_ms", "troubles", "said_at"),
    [
        (None, {0.0: NOT_YET, 1.0: NOT_YET, 2.5: None}, []),
        (None, {0.0: NOT_YET, 1.0: NOT_YET, 3.0: NOT_YET, 9.0: NOT_YET}, [3.0]),
        (None, {0.0: NOT_YET, 3.0: NOT_YET, 4.0: None, 5.0: NOT_YET, 7.0: NOT_YET, 8.0: NOT_YET}, [3.0, 8.0]),
        (1_000, {0.0: NOT_YET}, [0.0]),
    ],
)
def test_that_a_group_cannot_be_joined_is_said_when_it_lasts_or_nothing_more_is_waited_for(
    timeout_ms: int | None,
    troubles: dict[float, TidegaugeError | None],
    said_at: list[float],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first group of a cluster waits for __consumer_offsets to be created, which is no trouble of the reader's."""
    now = 0.0
    consumer = Outside()
    printing = consume.Printing(lambda _: b"", None, timeout_ms, now=lambda: now)
    said = []
    for now, consumer.trouble in troubles.items():
        printing.tell_news(cast("consume.Consumer", consumer), has_waited=True)
        if "Group shop cannot be joined at the moment, and it is retried: COORDINATOR" in capsys.readouterr().err:
            said.append(now)
    assert said == said_at
