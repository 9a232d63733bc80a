"""The sides that a benchmark can compare, by the names of its option ``--sides``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path

from fetched import Unavailable
from kafka_4_side import Kafka4
from kafka_side import Kafka
from tidegauge_side import Tidegauge

Made = Tidegauge | Kafka
SIDES: dict[str, Callable[[Path], Made]] = {
    "tidegauge": Tidegauge,
    "tidegauge-kraft": lambda directory: Tidegauge(directory, mode="kraft"),
    "kafka-3.9": Kafka,
    "kafka-4.3": Kafka4,
}
BY_DEFAULT = ("tidegauge", "kafka-3.9")


def add_option(parser: ArgumentParser) -> None:
    """Add ``--sides`` to a benchmark's options."""
    parser.add_argument(
        "--sides",
        nargs="+",
        choices=tuple(SIDES),
        default=BY_DEFAULT,
        metavar="SIDE",
        help=f"the first one's ratios to the others are shown: {', '.join(SIDES)} (default: {' '.join(BY_DEFAULT)})",
    )


def made(names: Sequence[str], directory: Path) -> list[Made]:
    """Return the available sides, none started; stderr names the others."""
    found: list[Made] = []
    for name in names:
        try:
            found.append(SIDES[name](directory))
        except Unavailable as problem:
            print(f"{name} is left out: {problem}", file=sys.stderr)
    return found
