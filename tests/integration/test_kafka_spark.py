"""Spark's own Kafka source and sink, ``format("kafka")``, batch and streaming, in one session, through failovers.

The connector comes from Maven Central in the version of the installed PySpark, or in the newest before it that is
there; without Maven the tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.programs import Unavailable, connector_jars
from tests.clients.runs import LIMIT_SECONDS, STAGE, VALUES, Run
from tests.integration.spark_shell import SparkShell
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pyspark = pytest.importorskip("pyspark", reason="pip install -e '.[spark]' brings it")
pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]

HELPERS = """
# Kafka's admin client, with which the driver looks up offsets, keeps a request for a broker that is dead by then until
# this timeout; it is 60 s by default.
kafka = {"kafka.bootstrap.servers": servers, "kafka.default.api.timeout.ms": "8000", "kafka.request.timeout.ms": "8000"}
def rows(topic, **options):
    frame = spark.read.format("kafka").options(**kafka, **options).option("subscribe", topic).load()
    text = frame.selectExpr("CAST(value AS STRING)", "partition", "offset", "CAST(key AS STRING)")
    return [list(row) for row in text.orderBy("offset").collect()]
def write(topic, values):
    frame = spark.createDataFrame([(value, "k") for value in values], "value string, key string").coalesce(1)
    frame.write.format("kafka").options(**kafka).option("topic", topic).save()
"""


@pytest.fixture(scope="module")
def connector() -> tuple[str, list[Path]]:
    try:
        return connector_jars(pyspark.__version__)
    except Unavailable as problem:
        pytest.skip(f"Spark's Kafka connector can't be had here: {problem}")


@pytest.fixture(scope="module")
def shell(connector: tuple[str, list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkShell]:
    _, jars = connector
    one = SparkShell(tmp_path_factory.mktemp("spark") / "spark.log", jars)
    yield one
    one.close()


@pytest.fixture
def spark(
    shell: SparkShell,
    cluster: LocalCluster,
    connector: tuple[str, list[Path]],
    record_property: Callable[[str, object], None],
) -> Callable[..., Any]:
    """Run code in the session; an error of Spark's is returned as a text."""
    record_property("client", 'Spark: format("kafka")')
    record_property("version", f"{pyspark.__version__} (connector {connector[0]})")
    servers = ",".join(cluster.kafka_bootstrap_servers)
    return lambda code, **variables: shell.run(HELPERS + code, servers=servers, **variables)


@pytest.fixture
def make_run(cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[[str], Run]]:
    made: list[Run] = []

    def make(topic: str) -> Run:
        made.append(Run(cluster, topic, tmp_path))
        return made[-1]

    yield make
    for run in made:
        run.close()


@pytest.mark.kafka_client(
    "batch sink, and batch source by offsets and by time, through a killed and a restarted leader"
)
def test_batches_are_written_and_read_through_failovers(
    spark: Callable[..., Any], make_run: Callable[[str], Run]
) -> None:
    run = make_run("spark-kafka-batch")
    read = "result = rows('spark-kafka-batch', startingOffsets='earliest')"
    write = "write('spark-kafka-batch', values)"
    assert spark(write, values=VALUES[:STAGE]) is None
    with run.killed_leader():
        assert spark(write, values=VALUES[STAGE : 2 * STAGE]) is None
        assert len(spark(read)) == 2 * STAGE
    with run.stopped_leader():
        assert spark(write, values=VALUES[2 * STAGE :]) is None
        assert spark(read) == [[value, 0, offset, "k"] for offset, value in enumerate(VALUES)]
    some = "result = rows('spark-kafka-batch', startingOffsets=first, endingOffsets=last)"
    offsets = {name: f'{{"spark-kafka-batch": {{"0": {at}}}}}' for name, at in (("first", 10), ("last", 12))}
    assert spark(some, **offsets) == [[VALUES[at], 0, at, "k"] for at in (10, 11)]
    assert len(spark("result = rows('spark-kafka-batch', startingTimestamp='1')")) == len(VALUES)


STREAM = """
stream = spark.readStream.format("kafka").options(**kafka).option("subscribe", "spark-kafka-in")
copied = stream.option("startingOffsets", "earliest").load().selectExpr("key", "value")
sink = copied.writeStream.format("kafka").options(**kafka).option("topic", "spark-kafka-out").queryName("copy")
sink.option("checkpointLocation", directory).trigger(processingTime="200 milliseconds").start()
"""
STOPPED = """
[query] = [one for one in spark.streams.active if one.name == "copy"]
query.stop()
result = str(query.exception())
"""


@pytest.mark.kafka_client("streaming source and sink through a killed and a restarted leader")
def test_a_stream_copies_a_topic_through_failovers(
    spark: Callable[..., Any], make_run: Callable[[str], Run], tmp_path: Path
) -> None:
    read, written = make_run("spark-kafka-in"), make_run("spark-kafka-out")
    assert spark(STREAM, directory=str(tmp_path / "checkpoint")) is None

    def write(first: int, last: int) -> None:
        assert spark("write('spark-kafka-in', values)", values=VALUES[first:last]) is None
        until(lambda: written.high_watermark() >= last, what="the stream has copied them", timeout=LIMIT_SECONDS)

    write(0, STAGE)
    with read.killed_leader():
        write(STAGE, 2 * STAGE)
    with written.killed_leader():
        write(2 * STAGE, 3 * STAGE)
    with written.stopped_leader():
        write(3 * STAGE, 4 * STAGE)
    assert spark(STOPPED) == "None"
    copied = spark("result = rows('spark-kafka-out', startingOffsets='earliest')")
    assert [value for value, *_ in copied] == VALUES
