"""The shipped scenarios of failures on Apache Kafka 3.9 and on Tidegauge, field by field: ``make differential``.

Each scenario of today's rule whose steps are made of what happens to processes and networks is played twice from the
same file: on three processes of Apache Kafka and on three of Tidegauge, each with a ZooKeeper of its own
(``differential_failures_sides``). At each ``expect`` both are looked at by the same means
(``differential_failures_look``): leader, leader epoch, ISR; of each replica role, leader epoch, LEO, HW, LSO, epoch
cache and every record; groups and transactions, what a consumer reads, the response to each produce and election. All
of it must be the same on both, and what the file expects must be so on both: the file is a third witness.

The played scenarios, and the permitted differences, are in ``differential_failures_rules``; other scenarios are
printed with the reason. Exit 0: no difference; 1: a difference, or a scenario that did not come to its end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import differential_failures_rules as rules
from differential_failures_look import Eyes
from differential_failures_player import Player
from differential_failures_sides import KafkaSide, TidegaugeSide
from tests.integration.apache_kafka import Unavailable

from tidegauge.errors import TidegaugeError
from tidegauge_lab.scenario import Scenario, load, shipped_names
from tidegauge_lab.scenario.outcome import StepFailed


def _note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _played(scenario: Scenario, side: KafkaSide | TidegaugeSide) -> Player:
    """Play a scenario on a side that is not started, and take it down; return its player."""
    with side:
        side.begin()
        with closing(side.zookeeper()) as view:
            player = Player(scenario, side, Eyes(side, view), lambda text: _note(f"{side.name:9} {text}"))
            with closing(player):
                try:
                    player.play()
                except (AssertionError, OSError, StepFailed, TidegaugeError) as problem:
                    player.unlike_the_file.append(f"{player.moment}: it did not come to its end: {problem}")
            return player


def compared(scenario: Scenario, directory: Path) -> rules.Verdict:
    """Play a scenario on both sides at once, and compare.

    Raises:
        Unavailable: Apache Kafka can't be had here.
    """
    sides = [
        KafkaSide(scenario, directory / f"{scenario.name}-kafka"),
        TidegaugeSide(scenario, directory / f"{scenario.name}-tidegauge"),
    ]
    with ThreadPoolExecutor(len(sides)) as pool:
        theirs, ours = [one.result() for one in [pool.submit(_played, scenario, side) for side in sides]]
    verdict = rules.compared(theirs.moments, ours.moments)
    for name, player in (("Kafka", theirs), ("Tidegauge", ours)):
        verdict.differences += [f"{name} and the file: {problem}" for problem in player.unlike_the_file]
    return verdict


def main(arguments: Sequence[str]) -> int:
    """Play, compare, print; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios; none: all that can be played")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave data and logs of both sides in this directory")
    options = parser.parse_args(arguments)
    played, not_played = rules.sorted_out([load(name) for name in options.names or shipped_names()])
    total = rules.Verdict()
    with tempfile.TemporaryDirectory(prefix="differential-failures-") as directory:
        for scenario in played:
            try:
                verdict = compared(scenario, options.keep or Path(directory))
            except Unavailable as reason:
                print(f"Apache Kafka can't be had here ({reason}): failures are not compared")
                return 0
            print(f"{scenario.name}: {verdict.compared} fields, {len(verdict.differences)} differ", flush=True)
            total.add(verdict)
    for name, why in not_played.items():
        print(f"{name}: not played; {why}")
    return rules.report(total, len(played))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
