"""Tidegauge beside Apache Kafka 3.9 in one run: throughput, latency, start-up, memory. See README.md here."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import kafka_side
import measure
import tidegauge_side


def main() -> None:
    """Run both sides and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller workloads")
    parser.add_argument("--without-kafka", action="store_true", help="our side alone")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    cells = measure.workloads(arguments.quick)
    folder = Path(tempfile.mkdtemp(prefix="tidegauge-bench-"))
    theirs = None
    try:
        ours = tidegauge_side.run(folder, cells)
        if not arguments.without_kafka:
            try:
                theirs = kafka_side.run(folder, cells)
            except kafka_side.Unavailable as problem:
                print(f"Apache Kafka is left out: {problem}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(measure.markdown(ours, theirs))
    if arguments.json is not None:
        arguments.json.write_text(measure.as_json(ours, theirs) + "\n")


if __name__ == "__main__":
    main()
