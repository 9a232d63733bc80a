"""The figures of a query's lag, as Kafka's source reports them (KafkaMicroBatchStream.metrics)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegauge_spark.progress import lags_of, offsets_behind_latest

LATEST = '{"orders": {"0": 10, "1": 25, "2": 3}}'
END = '{"orders": {"0": 10, "1": 5}, "__epochs": {"orders": {"0": 2}}}'


def test_minimum_maximum_and_average_are_text() -> None:
    """A partition that was not consumed yet counts from 0; stored epochs are no partitions."""
    assert offsets_behind_latest(LATEST, END) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "20",
        "avgOffsetsBehindLatest": str(23 / 3),
    }


@pytest.mark.parametrize(
    ("latest", "end"), [(None, END), (LATEST, None), ("{}", END), ("7", END), ("broken", END), ('{"a": 1}', END)]
)
def test_without_offsets_there_are_no_figures(latest: str | None, end: str | None) -> None:
    assert offsets_behind_latest(latest, end) is None


def test_other_sources_of_the_query_are_passed_over() -> None:
    ours = SimpleNamespace(
        description="org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1",
        latestOffset=LATEST,
        endOffset=END,
    )
    other = SimpleNamespace(description="RateStreamV2", latestOffset=LATEST, endOffset=END)
    assert len(lags_of([ours, other])) == 1
