"""How far a query is behind: the three figures that Spark's Kafka source adds to a query's progress.

Contract: Spark lets no Python source report metrics, but its progress has the source's latest and end offsets, and the
figures follow from them. ``offsets_behind_latest`` is pure; ``lag_listener`` makes a StreamingQueryListener of it::

    spark.streams.addListener(lag_listener(lambda query, lag: print(query, lag)))

gives ``{"minOffsetsBehindLatest": "0", "maxOffsetsBehindLatest": "12", "avgOffsetsBehindLatest": "4.5"}`` after each
trigger. pyspark is imported when a listener is made.

Source: ``KafkaMicroBatchStream.metrics`` of Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from tidegauge_spark.offsets import from_json

Lag = dict[str, str]
Report = Callable[[str, Lag], None]


def _document(text: Any) -> dict[str, Any] | None:
    try:
        document = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def offsets_behind_latest(latest_offset: Any, end_offset: Any) -> Lag | None:
    """Return the records between the end of the last batch and the high watermarks, over all partitions.

    Args:
        latest_offset: of a source's progress, JSON text or a document.
        end_offset: the same.

    Returns:
        Minimum, maximum and average as text, as Kafka's source has them; None if an offset is missing.
    """
    latest, end = _document(latest_offset), _document(end_offset)
    if not latest or end is None:
        return None
    try:
        consumed = from_json(end)
        behind = [offset - consumed.get(one, 0) for one, offset in from_json(latest).items()]
    except (AttributeError, TypeError, ValueError):
        return None  # the offsets of another kind of source
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def _is_ours(source: Any) -> bool:
    """Return whether a source is this one, by the shape of its offsets: Spark shows one class for all Python
    sources.
    """
    return ".python." in str(source.description)


def lags_of(sources: Iterable[Any]) -> list[Lag]:
    """Return the figures of a progress's sources of this kind."""
    lags = (offsets_behind_latest(source.latestOffset, source.endOffset) for source in sources if _is_ours(source))
    return [lag for lag in lags if lag is not None]


def lag_listener(report: Report) -> Any:
    """Return a StreamingQueryListener that reports each source's figures after each trigger.

    Args:
        report: called with the query's name (its id if it has none) and the figures; on Spark's listener thread.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener  # noqa: PLC0415  (pyspark only when it is used)

    class LagListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802  (Spark's name)
            """Do nothing: no figures are known yet."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802  (Spark's name)
            """Report the figures after a trigger."""
            for lag in lags_of(event.progress.sources):
                report(event.progress.name or str(event.progress.id), lag)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802  (Spark's name)
            """Do nothing: no figures have changed."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  (Spark's name)
            """Do nothing: the last figures stay."""

    return LagListener()
