"""The accountant at scale: producers' histories compared with the committed log, as joins of Spark.

Contract: the kinds of findings and their meaning are those of ``tidegauge verify``; the histories are those of
``tidegauge_client.history``. Nothing is held in memory as a whole, so the number of records is limited by Spark alone.

- An acknowledged record is looked up at its acknowledged offset, and found if key and value match. The others are
  looked up by topic, key, value and timestamp (without timestamp if the log has times of its own, LogAppendTime):
  acknowledged ones first, then the others in the partition of their destination, then the others anywhere.
- A remaining record of the log is duplicated if its key and value were sent and found, else a phantom.
- Not lost: records below the log start offset, records that the leader holds above the high watermark, records sent
  with acks=0; in a compacted topic, tombstones, records without a key, and records whose key was written again later.
- Records that were sent to another topic of the same name, by the ids in the history, are left out and counted.
- Order is that of one producer within a partition, and of records in real time, as the accountant has them.

Replicas, epochs and event logs are not checked: ``tidegauge verify`` does that.
Source: ``tidegauge_lab.accountant``; docs/accountant.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

MAX_EXAMPLES = 10
HISTORY_SCHEMA = (
    "type string, producer string, number bigint, time_us bigint, topic string, `partition` int, offset bigint, "
    "acks string, key string, value string, key_base64 string, value_base64 string, timestamp_ms bigint, error string, "
    "topic_id string"
)
MEANINGS = {
    "lost": "acknowledged, and not in the committed log, though later records are",
    "lost-tail": "acknowledged at an offset at or above the end of the committed log",
    "kept-though-failed": "in the log, though the producer had a definite error",
    "phantom": "in the log, but in no history",
    "misplaced": "acknowledged at one offset, but kept at another",
    "duplicated": "in the log more often than it was sent",
    "reordered": "a producer's later record has a lower offset than an earlier one of the same partition",
    "reordered-in-real-time": "handed over after another was acknowledged, but comes before it",
}
NOT_CHECKED = [
    "diverged, epoch-back, high-watermark-back, two-leaders, acknowledged-below-min-isr, read-differently: tidegauge "
    "verify looks at replicas, event logs and reads"
]
BOUNDS_SCHEMA = (
    "topic string, `partition` int, log_start_offset bigint, high_watermark bigint, log_end_offset bigint, "
    "topic_id string"
)


class Bounds(NamedTuple):
    """One partition of the log: offsets, whose ends are exclusive, and the id of its topic, empty where unknown."""

    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    topic_id: str = ""


LINES = """
    SELECT line.*, line.type IS NULL OR line.producer IS NULL
        OR (line.number IS NULL AND line.type <> 'begin') AS damaged
    FROM (SELECT from_json(value, '{schema}') AS line FROM history WHERE trim(value) <> '')"""
INVOKED = """
    SELECT invoked.*, try_element_at(filter(begins, one -> one.time_us <= invoked.time_us), -1).topic_id AS sent_to
    FROM (
        SELECT * FROM history_lines WHERE type = 'invoke' AND topic IN ({topics}) AND NOT damaged
    ) AS invoked
    LEFT JOIN (
        SELECT producer AS owner, topic AS name, sort_array(collect_list(struct(time_us, topic_id))) AS begins
        FROM history_lines WHERE type = 'begin' AND NOT damaged GROUP BY producer, topic
    ) ON producer = owner AND topic = name"""
OF_THIS_TOPIC = "coalesce(sent_to = CASE topic {ids} ELSE NULL END, true)"
SENT = """
    SELECT invoked.*, completed_us, error, coalesce(outcome, 'info') AS outcome,
        coalesce(outcome = 'ok' AND acks <> '0', false) AS acknowledged,
        coalesce(reported, asked, -1) AS `partition`, coalesce(reported_offset, -1) AS offset
    FROM (
        SELECT producer, number, topic, acks, time_us AS invoked_us, `partition` AS asked,
            coalesce(unbase64(key_base64), CAST(key AS BINARY)) AS key,
            coalesce(unbase64(value_base64), CAST(value AS BINARY)) AS value, {time} AS match_ms
        FROM invoked_lines WHERE {of_this_topic}
    ) AS invoked
    LEFT JOIN (
        SELECT producer AS who, number AS which, type AS outcome, time_us AS completed_us, `partition` AS reported,
            offset AS reported_offset, error
        FROM history_lines WHERE type IN ('ok', 'fail', 'info') AND NOT damaged
    ) ON producer = who AND number = which"""
WHERE_ACKNOWLEDGED = """
    SELECT producer, number, topic, `partition`, offset FROM (
        SELECT s.producer, s.number, log.*,
            row_number() OVER (PARTITION BY log.topic, log.`partition`, log.offset ORDER BY s.producer, s.number) AS nth
        FROM sent AS s JOIN log
            ON s.topic = log.topic AND s.`partition` = log.`partition` AND s.offset = log.offset
            AND s.key <=> log.key AND s.value <=> log.value
        WHERE s.acknowledged
    ) WHERE nth = 1"""
ELSEWHERE = """
    SELECT s.producer, s.number, l.topic, l.`partition`, l.offset
    FROM (
        SELECT *, row_number() OVER (
            PARTITION BY topic, key, value, match_ms{partition} ORDER BY outcome = 'fail', invoked_us, number) AS copy
        FROM rest_of_sent AS sent LEFT ANTI JOIN elsewhere
            ON sent.producer = elsewhere.producer AND sent.number = elsewhere.number
        WHERE {wanted}
    ) AS s JOIN (
        SELECT *, row_number() OVER (
            PARTITION BY topic, key, value, match_ms{partition} ORDER BY `partition`, offset) AS copy
        FROM rest_of_log AS log LEFT ANTI JOIN elsewhere
            ON log.topic = elsewhere.topic AND log.`partition` = elsewhere.`partition` AND log.offset = elsewhere.offset
    ) AS l
    ON s.topic = l.topic AND s.key <=> l.key AND s.value <=> l.value AND s.match_ms = l.match_ms AND s.copy = l.copy
    {same_partition}"""
# If the log is as it should be, nothing is left after the first pass: what follows looks at the rest alone.
RESTS = {
    "rest_of_sent": """
        SELECT sent.* FROM sent LEFT ANTI JOIN pairs
            ON sent.producer = pairs.producer AND sent.number = pairs.number""",
    "rest_of_log": """
        SELECT log.* FROM log LEFT ANTI JOIN pairs
            ON log.topic = pairs.topic AND log.`partition` = pairs.`partition` AND log.offset = pairs.offset""",
    "elsewhere": "SELECT * FROM pairs WHERE false",
}
PASSES = (
    ("sent.acknowledged", False),
    ("NOT sent.acknowledged AND sent.`partition` >= 0", True),
    ("NOT sent.acknowledged AND sent.`partition` < 0", False),
)
VIEWS = {
    "placed": """
        SELECT sent.*, pairs.`partition` AS kept_partition, pairs.offset AS kept_offset
        FROM sent LEFT JOIN pairs ON sent.producer = pairs.producer AND sent.number = pairs.number""",
    "judged": """
        SELECT placed.*, CASE
            WHEN NOT acknowledged OR kept_offset IS NOT NULL THEN NULL
            WHEN high_watermark IS NULL THEN 'unreadable'
            WHEN placed.offset < log_start_offset THEN 'deleted'
            WHEN {is_compacted} AND placed.offset < high_watermark AND (placed.key IS NULL OR placed.value IS NULL
                OR coalesce(placed.offset < newest_offset, false)) THEN 'deleted'
            WHEN placed.offset < high_watermark THEN 'lost'
            WHEN placed.offset < log_end_offset THEN 'uncommitted'
            ELSE 'lost-tail' END AS missing
        FROM placed
        LEFT JOIN bounds ON placed.topic = bounds.topic AND placed.`partition` = bounds.`partition`
        LEFT JOIN newest ON placed.topic = newest.topic AND placed.`partition` = newest.`partition`
            AND placed.key <=> newest.key""",
    "left_over": """
        SELECT log.* FROM rest_of_log AS log LEFT ANTI JOIN elsewhere
            ON log.topic = elsewhere.topic AND log.`partition` = elsewhere.`partition`
            AND log.offset = elsewhere.offset""",
    "known": """
        SELECT topic, key, value, first(acks) AS acks
        FROM placed LEFT SEMI JOIN left_over AS l
            ON placed.topic = l.topic AND placed.key <=> l.key AND placed.value <=> l.value
        WHERE kept_offset IS NOT NULL GROUP BY topic, key, value""",
    "ordered": """
        SELECT topic, kept_partition AS `partition`, kept_offset AS offset, acks, producer, number, invoked_us,
            completed_us, acknowledged, max(kept_offset) OVER (
                PARTITION BY topic, kept_partition, producer ORDER BY number
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS behind
        FROM placed WHERE kept_offset IS NOT NULL AND outcome <> 'fail'""",
    # At one time handing over precedes acknowledgement: only what was acknowledged earlier binds.
    "real_time": """
        SELECT *, max(response_offset) OVER (
            PARTITION BY topic, `partition` ORDER BY time_us, is_response
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS behind
        FROM (
            SELECT topic, `partition`, offset, acks, producer, number, invoked_us AS time_us, 0 AS is_response,
                CAST(NULL AS BIGINT) AS response_offset FROM ordered
            UNION ALL
            SELECT topic, `partition`, offset, acks, producer, number, completed_us AS time_us, 1 AS is_response,
                offset AS response_offset FROM ordered WHERE acknowledged
        )""",
    "findings": """
        SELECT missing AS kind, topic, `partition`, offset, acks, producer, number, CAST(NULL AS BIGINT) AS other, value
        FROM judged WHERE missing IN ('lost', 'lost-tail')
        UNION ALL
        SELECT 'kept-though-failed', topic, kept_partition, kept_offset, acks, producer, number, NULL, value
        FROM placed WHERE outcome = 'fail' AND kept_offset IS NOT NULL
        UNION ALL
        SELECT 'misplaced', topic, kept_partition, kept_offset, acks, producer, number, offset, value
        FROM placed WHERE acknowledged AND (kept_offset <> offset OR kept_partition <> `partition`)
        UNION ALL
        SELECT IF(known.topic IS NULL, 'phantom', 'duplicated'), l.topic, l.`partition`, l.offset,
            coalesce(known.acks, ''), NULL, NULL, NULL, l.value
        FROM left_over AS l LEFT JOIN known ON l.topic = known.topic AND l.key <=> known.key AND l.value <=> known.value
        UNION ALL
        SELECT 'reordered', topic, `partition`, offset, acks, producer, number, behind, NULL
        FROM ordered WHERE offset < behind
        UNION ALL
        SELECT 'reordered-in-real-time', topic, `partition`, offset, acks, producer, number, behind, NULL
        FROM real_time WHERE is_response = 0 AND offset < behind""",
}
ACCOUNTS = """
    SELECT acks, count(*) AS sent, count_if(acknowledged) AS acknowledged, count_if(outcome = 'fail') AS failed,
        count_if(outcome = 'info') AS unknown, count_if(acknowledged AND kept_offset IS NOT NULL) AS kept,
        count_if(NOT acknowledged AND outcome <> 'fail' AND kept_offset IS NOT NULL) AS kept_unknown,
        count_if(missing = 'lost') AS lost, count_if(missing = 'lost-tail') AS lost_tail,
        count_if(missing = 'deleted') AS deleted, count_if(missing = 'uncommitted') AS uncommitted,
        count_if(missing = 'unreadable') AS unreadable
    FROM judged GROUP BY acks ORDER BY acks"""
EXAMPLES = """
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY kind ORDER BY topic, `partition`, offset) AS nth FROM findings
    ) WHERE nth <= {examples} ORDER BY kind, nth"""
COUNTS = """
    SELECT kind, topic, `partition`, acks, count(*) AS count FROM findings
    GROUP BY kind, topic, `partition`, acks ORDER BY kind, topic, `partition`, acks"""
NO_COMPACTION = """
    SELECT topic, `partition`, key, offset AS newest_offset FROM log WHERE false"""
COMPACTION = """
    SELECT topic, `partition`, key, max(offset) AS newest_offset FROM (
        SELECT topic, `partition`, key, offset FROM log
        UNION ALL SELECT topic, `partition`, key, offset FROM sent WHERE acknowledged
        UNION ALL SELECT sent.topic, bounds.`partition`, key, 9223372036854775807
            FROM sent JOIN bounds ON sent.topic = bounds.topic AND sent.`partition` IN (-1, bounds.`partition`)
            WHERE value IS NULL AND NOT acknowledged AND outcome <> 'fail'
    ) GROUP BY topic, `partition`, key"""


class Audit(NamedTuple):
    """The findings, as plain rows."""

    accounts: list[dict[str, Any]]
    counts: list[dict[str, Any]]
    examples: list[dict[str, Any]]
    records: int
    damaged_lines: int
    of_others: int = 0
    without_topic_id: int = 0


def audit(
    spark: Any, history: Any, log: Any, bounds: Sequence[Bounds], topics: Sequence[str], *, is_compacted: bool
) -> Audit:
    """Compare histories with the log.

    Args:
        spark: the session; views of earlier calls are replaced.
        history: one line of a history per row, as text in column ``value``.
        log: the committed log, with the source's columns.
        bounds: of every partition that was read.
        topics: the topics to compare.
        is_compacted: whether an older record of a key may be missing.
    """
    history.createOrReplaceTempView("history")
    _view(spark, "history_lines", LINES.format(schema=HISTORY_SCHEMA))
    columns = ["topic", "`partition`", "offset", "key", "value"]
    kept = _keep(log.selectExpr(*columns, "unix_millis(timestamp) AS match_ms", "timestampType"), "log")
    has_own_times = kept.where("timestampType = 1").isEmpty()
    kept.selectExpr(*columns, "match_ms" if has_own_times else "0L AS match_ms").createOrReplaceTempView("log")
    names = ", ".join(f"'{topic}'" for topic in topics)
    ids = " ".join(f"WHEN '{topic}' THEN '{topic_id}'" for topic, topic_id in _topic_ids(bounds).items())
    of_this_topic = OF_THIS_TOPIC.format(ids=ids or "WHEN '' THEN ''")
    invoked = _keep(spark.sql(INVOKED.format(topics=names)), "invoked_lines")
    time = "timestamp_ms" if has_own_times else "0L"
    _keep(spark.sql(SENT.format(time=time, of_this_topic=of_this_topic)), "sent")
    spark.createDataFrame(list(bounds), BOUNDS_SCHEMA).createOrReplaceTempView("bounds")
    _view(spark, "newest", COMPACTION if is_compacted else NO_COMPACTION)
    pairs = _keep(spark.sql(WHERE_ACKNOWLEDGED), "pairs")
    for name, query in RESTS.items():
        _keep(spark.sql(query), name)
    elsewhere = spark.table("elsewhere")
    for wanted, with_partition in PASSES:
        found = ELSEWHERE.format(
            wanted=wanted,
            partition=", `partition`" if with_partition else "",
            same_partition="AND s.`partition` = l.`partition`" if with_partition else "",
        )
        elsewhere = _keep(elsewhere.unionAll(spark.sql(found)), "elsewhere")
    pairs.unionAll(elsewhere).createOrReplaceTempView("pairs")
    for name, query in VIEWS.items():
        _keep(spark.sql(query.format(is_compacted=is_compacted)), name)
    return Audit(
        accounts=_rows(spark, ACCOUNTS),
        counts=_rows(spark, COUNTS),
        examples=_rows(spark, EXAMPLES.format(examples=MAX_EXAMPLES)),
        records=spark.table("log").count(),
        damaged_lines=spark.table("history_lines").where("damaged").count(),
        of_others=invoked.where(f"NOT ({of_this_topic})").count(),
        without_topic_id=invoked.where("sent_to IS NULL").count(),
    )


def _topic_ids(bounds: Sequence[Bounds]) -> dict[str, str]:
    return {one.topic: one.topic_id for one in bounds if one.topic_id}


def _view(spark: Any, name: str, query: str) -> None:
    spark.sql(query).createOrReplaceTempView(name)


def _keep(frame: Any, name: str) -> Any:
    """Work a frame out now and forget how: each pass uses the one before several times, so plans would grow like 3^n.

    It is kept in the executors' memory and on their disks; the job fails, and can be run again, if one of them is lost.
    """
    kept = frame.localCheckpoint(eager=True)
    kept.createOrReplaceTempView(name)
    return kept


def _rows(spark: Any, query: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.sql(query).collect()]
