"""Tidegauge beside Apache Kafka 3.9, field by field: ``make differential`` (bench/README.md).

The same script (``differential_script``) is played on both; what both say and leave behind is compared
(``differential_rules`` has what may differ, each with its reason). Anything else is printed and fails the run.

Where Kafka can't be had, the run says so and compares with a recording of Kafka's side (``--record`` writes it).
Exit 0: no difference; 1: a difference.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
import time
from pathlib import Path

import differential_rules as rules
import kafka_side
from differential_look import Facts
from differential_script import Run
from differential_sides import OurSide, Side, TheirSide
from jars import kafka_jars

RECORDING = Path(__file__).with_name(f"differential-kafka-{kafka_side.VERSION}.json.gz")


def _note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _facts(side: Side, directory: Path, kept: Path | None) -> Facts:
    run = Run(side, directory)
    try:
        run.play(_note)
    except BaseException:
        if kept is not None:
            kept.with_suffix(".partial").write_text(json.dumps(run.facts, indent=1))
        raise
    if kept is not None:
        kept.write_text(json.dumps(run.facts, indent=1))
    return run.facts


def record(facts: Facts) -> None:
    """Keep Kafka's side; what changes from run to run is made equal first."""
    text = json.dumps(rules.rewritten(facts, set()), indent=0, sort_keys=True)
    RECORDING.write_bytes(gzip.compress(text.encode(), mtime=0))


def recorded() -> Facts:
    """Kafka's side as it was recorded."""
    facts: Facts = json.loads(gzip.decompress(RECORDING.read_bytes()))
    return facts


def main() -> int:
    """Run both, compare, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", action="store_true", help="compare with the recording, though Kafka can be had")
    parser.add_argument("--record", action="store_true", help="keep Kafka's side as the recording")
    parser.add_argument("--kafka-facts", type=Path, help="write what was seen of Kafka to this file")
    parser.add_argument("--our-facts", type=Path, help="write what was seen of us to this file")
    options = parser.parse_args()
    jars = None
    if not options.recorded:
        try:
            jars = kafka_jars()
        except kafka_side.Unavailable as reason:
            print(f"Apache Kafka can't be had here ({reason}): compared is with a recording of {kafka_side.VERSION}")
    with tempfile.TemporaryDirectory(prefix="differential-") as name:
        directory = Path(name)
        theirs = recorded() if jars is None else _facts(TheirSide(directory), directory, options.kafka_facts)
        ours = _facts(OurSide(directory, jars), directory, options.our_facts)
    if options.record and jars is not None:
        record(theirs)
    verdict = rules.compare(theirs, ours)
    print(verdict.text())
    return 1 if verdict.differences else 0


if __name__ == "__main__":
    sys.exit(main())
