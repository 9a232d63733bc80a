"""Replication figures from brokers' event logs: elections, leaderless time, time under min ISR, high-watermark lag.

Contract: Spark SQL over all lines of ``*.events.jsonl*``, of any number, on any master. Times are ms of the brokers'
clocks, and a state lasts until the next event of its partition, or the last event of all.

- A leadership is a leader epoch of a partition, from the first event that mentions it: the controller's election, or
  the broker that takes the role.
- A partition is leaderless from its leader's death or pause (lab events kill, pause) to the next leadership, or the
  broker's return (resume); and as long as the controller has found no leader.
- The ISR is the committed one, or that of an election. It is under min ISR while it is smaller than
  min.insync.replicas.
- High-watermark lag is log end offset minus high watermark on the leader, weighted by how long it lasted. Brokers merge
  these events over a short time: shorter peaks don't show.

Source: docs/events.md for the fields; docs/replication.md for the high watermark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegauge.replication_report import PERCENTILES

EVENT_SCHEMA = (
    "time_ms bigint, sequence bigint, source string, kind string, topic string, `partition` int, state string, "
    "action string, broker int, strategy string, leader int, leader_epoch int, isr array<int>, role string, "
    "partition_epoch int, old string, new string"
)

VIEWS = {
    "events": """
        SELECT event.*, try_cast(regexp_extract(event.source, '^broker-([0-9]+)$', 1) AS INT) AS own_id
        FROM (SELECT from_json(value, '{schema}') AS event FROM lines)
        WHERE event.kind IS NOT NULL AND event.time_ms IS NOT NULL""",
    "span": "SELECT min(time_ms) AS first_ms, max(time_ms) AS last_ms, count(*) AS events FROM events",
    "leaderships": """
        SELECT reported.*,
            coalesce(lead(from_ms) OVER by_epoch, (SELECT last_ms FROM span)) AS to_ms,
            lag(leader) OVER by_epoch AS leader_before
        FROM (
            SELECT topic, `partition`, leader_epoch, max(leader) AS leader, min(time_ms) AS from_ms,
                max(strategy) AS strategy
            FROM events
            WHERE kind = 'election' OR (kind = 'role' AND role = 'leader' AND leader = own_id)
            GROUP BY topic, `partition`, leader_epoch
        ) AS reported
        WINDOW by_epoch AS (PARTITION BY topic, `partition` ORDER BY leader_epoch)""",
    "deaths": """
        SELECT topic, `partition`, leader_epoch, first(to_ms) AS to_ms, min(time_ms) AS death_ms,
            first(leader) AS leader
        FROM leaderships JOIN (SELECT time_ms, broker FROM events WHERE kind = 'fault' AND action IN ('kill', 'pause'))
            ON broker = leader AND time_ms >= from_ms AND time_ms < to_ms
        GROUP BY topic, `partition`, leader_epoch""",
    "leaderless": """
        SELECT topic, `partition`, greatest(to_ms - from_ms, 0) AS ms FROM leaderships WHERE leader < 0
        UNION ALL
        SELECT topic, `partition`, least(first(to_ms), coalesce(min(time_ms), first(to_ms))) - first(death_ms) AS ms
        FROM deaths LEFT JOIN
            (SELECT time_ms, broker FROM events WHERE kind = 'fault' AND action IN ('resume', 'start'))
            ON broker = leader AND time_ms > death_ms AND time_ms < to_ms
        GROUP BY topic, `partition`, leader_epoch""",
    "isr_sizes": """
        SELECT topic, `partition`, isr_size,
            coalesce(lead(time_ms) OVER by_time, (SELECT last_ms FROM span)) - time_ms AS ms
        FROM (
            SELECT topic, `partition`, time_ms, sequence, size(from_json(new, 'array<int>')) AS isr_size
            FROM events WHERE kind = 'isr' AND state = 'committed'
            UNION ALL
            SELECT topic, `partition`, time_ms, sequence, size(isr) FROM events WHERE kind = 'election'
        )
        WINDOW by_time AS (PARTITION BY topic, `partition` ORDER BY time_ms, sequence)""",
    "offsets": """
        SELECT topic, `partition`, own_id, time_ms, sequence,
            last(CASE WHEN kind = 'log_end_offset' THEN CAST(new AS BIGINT) END, true) OVER so_far AS log_end_offset,
            last(CASE WHEN kind = 'high_watermark' THEN CAST(new AS BIGINT) END, true) OVER so_far AS high_watermark
        FROM events WHERE kind IN ('log_end_offset', 'high_watermark') AND own_id IS NOT NULL
        WINDOW so_far AS (PARTITION BY own_id, topic, `partition` ORDER BY time_ms, sequence
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)""",
    "lags": """
        SELECT offsets.topic, offsets.`partition`, greatest(log_end_offset - high_watermark, 0) AS records,
            greatest(coalesce(lead(time_ms) OVER (
                PARTITION BY offsets.topic, offsets.`partition`, leader_epoch ORDER BY time_ms, sequence
            ), to_ms) - time_ms, 1) AS ms
        FROM offsets JOIN leaderships
            ON offsets.topic = leaderships.topic AND offsets.`partition` = leaderships.`partition`
            AND own_id = leader AND time_ms >= from_ms AND time_ms <= to_ms
        WHERE log_end_offset IS NOT NULL AND high_watermark IS NOT NULL""",
}
TABLES = {
    "partitions": """
        SELECT led.topic, led.`partition`, leader_changes, coalesce(leaderless_ms, 0) AS leaderless_ms,
            coalesce(under_min_isr_ms, 0) AS under_min_isr_ms, smallest_isr, hw_lag, hw_lag_max
        FROM (SELECT topic, `partition`, count_if(leader >= 0 AND leader <> leader_before) AS leader_changes
              FROM leaderships GROUP BY topic, `partition`) AS led
        LEFT JOIN (SELECT topic, `partition`, sum(ms) AS leaderless_ms FROM leaderless GROUP BY topic, `partition`)
            USING (topic, `partition`)
        LEFT JOIN (SELECT topic, `partition`, min(isr_size) AS smallest_isr,
                       sum(CASE WHEN isr_size < {min_isr} THEN ms ELSE 0 END) AS under_min_isr_ms
                   FROM isr_sizes GROUP BY topic, `partition`)
            USING (topic, `partition`)
        LEFT JOIN (SELECT topic, `partition`, percentile(records, array({percentiles}), ms) AS hw_lag,
                       max(records) AS hw_lag_max
                   FROM lags GROUP BY topic, `partition`)
            USING (topic, `partition`)
        ORDER BY topic, `partition`""",
    "elections": """
        SELECT leader AS broker, coalesce(strategy, 'new') AS strategy, count(*) AS elections
        FROM leaderships WHERE leader >= 0 AND (leader_before IS NULL OR leader <> leader_before)
        GROUP BY leader, coalesce(strategy, 'new') ORDER BY broker, strategy""",
    "truncations": """
        SELECT own_id AS broker, count(*) AS truncations, sum(CAST(old AS BIGINT) - CAST(new AS BIGINT)) AS records
        FROM events WHERE kind = 'truncation' GROUP BY own_id ORDER BY broker""",
}


def replication_tables(spark: Any, lines: Any, min_isr: int, topics: list[str]) -> dict[str, Any]:
    """Return all tables as plain data.

    Args:
        spark: the session.
        lines: a DataFrame with one event per row, as text in column ``value``.
        min_isr: min.insync.replicas to compare with, for all topics and times; that of the event logs is not read.
        topics: only these; empty: all.
    """
    lines.createOrReplaceTempView("lines")
    for name, query in VIEWS.items():
        frame = spark.sql(query.format(schema=EVENT_SCHEMA.replace("'", "")))
        if name == "events":
            if topics:
                frame = frame.where(frame.topic.isNull() | frame.topic.isin(topics))
            frame = frame.cache()
        frame.createOrReplaceTempView(name)
    percentiles = ", ".join(f"{one}D" for one in PERCENTILES)
    tables: dict[str, Any] = {"span": spark.table("span").first().asDict()}
    for name, query in TABLES.items():
        rows = spark.sql(query.format(min_isr=min_isr, percentiles=percentiles)).collect()
        tables[name] = [row.asDict() for row in rows]
    spark.catalog.uncacheTable("events")
    return tables


def hw_lag_of(row: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the percentiles of a row of ``partitions`` by name; None if no leader reported both offsets."""
    if row["hw_lag"] is None:
        return None
    named = {f"p{int(share * 100)}": value for share, value in zip(PERCENTILES, row["hw_lag"], strict=True)}
    return named | {"max": row["hw_lag_max"]}
