"""Hand-made requests over Kafka's protocol to Apache Kafka 3.9.1 and to Tidegauge: ``make differential``.

The requests and the reasons for differences are in ``tests/wire_responses``. Where Kafka can't be had, its recorded
responses are compared with; ``--record`` keeps new ones. Exit 0: no difference without a reason; 1: one or more.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import kafka_side
from tests.wire_responses.differences import compare, record, recorded
from tests.wire_responses.parts import SETTINGS, responses
from tests.wire_responses.probe import Facts

from tidegauge.settings import BROKER_SETTINGS
from tidegauge_lab.local.cluster import LocalCluster

READY_SECONDS = 90.0


def _note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _addresses(bootstrap: list[str]) -> list[tuple[str, int]]:
    return [(host, int(port)) for host, _, port in (one.partition(":") for one in bootstrap)]


def theirs(directory: Path, say: Callable[[str], None]) -> Facts:
    """Return Kafka's responses.

    Raises:
        kafka_side.Unavailable: Kafka can't be had here.
    """
    side = kafka_side.Kafka(directory, SETTINGS)
    try:
        side.start()
        return responses(_addresses(side.bootstrap.split(",")), lambda part: say(f"Kafka: {part}"))
    finally:
        side.stop()


def ours(directory: Path, say: Callable[[str], None]) -> Facts:
    """Return Tidegauge's responses."""
    settings = {name: value for name, value in SETTINGS.items() if name in BROKER_SETTINGS}
    cluster = LocalCluster.create(directory / "tidegauge", 3, profile="kafka", settings=settings)
    try:
        cluster.up(READY_SECONDS)
        return responses(_addresses(cluster.kafka_bootstrap_servers), lambda part: say(f"Tidegauge: {part}"))
    finally:
        cluster.down()


def main() -> int:
    """Ask both, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", action="store_true", help="compare with Kafka's recorded responses")
    parser.add_argument("--record", action="store_true", help="keep Kafka's responses")
    parser.add_argument("--our-facts", type=Path, help="write our responses to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="differential-wire-") as name:
        directory = Path(name)
        try:
            facts = recorded() if options.recorded else theirs(directory, _note)
        except kafka_side.Unavailable as reason:
            print(f"Apache Kafka can't be had here ({reason}): its recorded responses are compared with")
            facts = recorded()
        if options.record:
            record(facts)
        mine = ours(directory, _note)
    if options.our_facts:
        options.our_facts.write_text(json.dumps(mine, indent=0, ensure_ascii=False))
    verdict = compare(facts, mine)
    print(verdict.text())
    return 1 if verdict.differences else 0


if __name__ == "__main__":
    sys.exit(main())
