"""Spark reading: the source ``tidegauge`` beside Spark's own Kafka connector, in one session. See README.md here.

The same data frame is written to both clusters and read from both, in turns; count and a sum of checksums say that both
gave the same records. The overhead of a read (planning, starting tasks) counts for both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import kafka_side
from fetched import Unavailable
from jars import connector_jars, newest_connector

from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster

BATCHING = {"kafka.batch.size": "65536", "kafka.linger.ms": "5"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload: number and size of the records, and number of partitions."""

    record_bytes: int
    partitions: int
    records: int

    @property
    def name(self) -> str:
        """How the table calls it."""
        return f"{self.record_bytes} B, {self.partitions} partition{'s' * (self.partitions > 1)}"

    @property
    def topic(self) -> str:
        """The topic that holds it."""
        return f"spark-{self.record_bytes}-{self.partitions}"


@dataclass(slots=True)
class Reads:
    """Rows per second of one side, each time, by the workload's name."""

    name: str
    rows_per_second: dict[str, list[float]] = field(default_factory=dict)

    def median(self, cell: Cell) -> float:
        """Return what the table shows."""
        return statistics.median(self.rows_per_second[cell.name])


@dataclass(frozen=True, slots=True)
class Place:
    """A format, and the cluster that it reads from."""

    format: str
    servers: str
    reads: Reads

    def frame(self, spark: Any, cell: Cell) -> Any:
        """All columns of all records of a workload."""
        reader = spark.read.format(self.format).option("kafka.bootstrap.servers", self.servers)
        return reader.option("subscribe", cell.topic).load()


def cells(records: int) -> list[Cell]:
    """100 B and 1 KiB (a fifth as many), 1 and 12 partitions."""
    counts = ((100, records), (1024, records // 5))
    return [Cell(size, partitions, count) for size, count in counts for partitions in (1, 12)]


def session(jars: list[Path], cores: int) -> Any:
    """Start a Spark session in local mode with these jars."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415  (after the environment is set)

    from tidegauge_spark import register  # noqa: PLC0415  (as above)

    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.jars", ",".join(map(str, jars))).config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def fill(spark: Any, place: Place, cell: Cell) -> tuple[int, int]:
    """Write a workload; its count and the sum of its values' checksums, as they are read again."""
    frame = spark.range(cell.records).selectExpr(
        f"CAST(lpad(CAST(id AS STRING), {cell.record_bytes}, 'tidegauge ') AS BINARY) AS value",
        f"CAST(id % {cell.partitions} AS INT) AS partition",
    )
    writer = frame.write.format(place.format).option("kafka.bootstrap.servers", place.servers)
    writer.options(**BATCHING).option("topic", cell.topic).mode("append").save()
    row = place.frame(spark, cell).selectExpr("count(*) AS rows", "sum(crc32(value)) AS sum").collect()[0]
    return row.rows, row.sum


def read(spark: Any, place: Place, cell: Cell) -> None:
    """Read it all once, into nothing, and note the rate."""
    frame = place.frame(spark, cell)
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - began
    place.reads.rows_per_second.setdefault(cell.name, []).append(cell.records / seconds)


def measure(spark: Any, places: list[Place], work: list[Cell], rounds: int) -> None:
    """Fill and read all workloads; the first read of each is for warming up and does not count."""
    for cell in work:
        filled = {place.format: fill(spark, place, cell) for place in places}
        if len(set(filled.values())) != 1 or filled["tidegauge"][0] != cell.records:
            raise RuntimeError(f"{cell.name}: not the same records: {filled}")
        for number in range(rounds + 1):
            for place in places:
                read(spark, place, cell)
                if number == 0:
                    place.reads.rows_per_second[cell.name].clear()
        rates = (f"{place.reads.name} {place.reads.median(cell):,.0f} rows/s" for place in places)
        print(f"{cell.name}: {', '.join(rates)}", file=sys.stderr, flush=True)


def markdown(sides: list[Reads], work: list[Cell]) -> str:
    """Return the table; a ratio above 1 is in our favour."""
    lines = [f"| workload | {' | '.join(f'{side.name}, rows/s' for side in sides)} |" + " ratio |" * (len(sides) > 1)]
    lines.append("|---" * (len(sides) + 1 + (len(sides) > 1)) + "|")
    for cell in work:
        rates = [side.median(cell) for side in sides]
        line = f"| {cell.name} | {' | '.join(f'{rate:,.0f}' for rate in rates)} |"
        lines.append(line + (f" {rates[0] / rates[1]:.2f} |" if len(rates) > 1 else ""))
    return "\n".join(lines)


def main() -> None:
    """Run both sides and print the table."""
    import pyspark  # noqa: PLC0415  (slow to import)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="of 100 B; a fifth of 1 KiB (default 2,000,000)")
    parser.add_argument("--rounds", type=int, default=5, help="reads of each side that count (default 5)")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 2, help="local[N] (default: all)")
    parser.add_argument("--without-kafka", action="store_true", help="our side alone")
    parser.add_argument("--connector", metavar="VERSION", help="of Spark's connector (default: Spark's, or one before)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    work = cells(arguments.records)
    directory = Path(tempfile.mkdtemp(prefix="tidegauge-bench-"))
    cluster = LocalCluster.create(directory / "tidegauge", 3, profile="kafka")
    kafka = None
    jars: list[Path] = []
    try:
        cluster.up()
        places = [Place("tidegauge", ",".join(cluster.bootstrap_servers), Reads("Tidegauge"))]
        if not arguments.without_kafka:
            try:
                wanted = arguments.connector
                version, jars = (wanted, connector_jars(wanted)) if wanted else newest_connector(pyspark.__version__)
                kafka = kafka_side.Kafka(directory / "kafka")
                kafka.start()
                places.append(Place("kafka", kafka.bootstrap, Reads(f"Spark's Kafka source {version}")))
            except Unavailable as problem:
                print(f"Spark's Kafka source is left out: {problem}", file=sys.stderr)
        with SyncAdmin(cluster.bootstrap_servers) as admin:
            for cell in work:
                admin.create_topic(cell.topic, partitions=cell.partitions, replication_factor=3)
        if kafka is not None:
            for cell in work:
                kafka.create(cell.topic, cell.partitions)
        spark = session(jars, arguments.cores)
        measure(spark, places, work, arguments.rounds)
        spark.stop()
    finally:
        if kafka is not None:
            kafka.stop()
        cluster.down()
        shutil.rmtree(directory, ignore_errors=True)
    sides = [place.reads for place in places]
    print(markdown(sides, work))
    if arguments.json is not None:
        figures = {
            "spark": pyspark.__version__,
            "records": arguments.records,
            "cores": arguments.cores,
            "sides": [asdict(side) for side in sides],
        }
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
