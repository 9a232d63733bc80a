"""The demo's books: the source's rows, the acknowledged ones, and the rows of the Parquet files.

A row is known by a 128-bit digest of its value; equal digests of different rows would be a wonder. Pure but for the
reading of Parquet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from tidegauge.counted import counted


def digest(value: bytes) -> bytes:
    """Return a row's fingerprint."""
    return blake2b(value, digest_size=16).digest()


@dataclass(slots=True)
class Account:
    """One side of the books: how often each row was seen, and how many rows each carrier has."""

    rows: Counter[bytes] = field(default_factory=Counter)
    carriers: Counter[str] = field(default_factory=Counter)

    def enter(self, key: bytes, value: bytes) -> None:
        """Count a row."""
        self.rows[digest(value)] += 1
        self.carriers[key.decode()] += 1

    @property
    def total(self) -> int:
        """Rows seen, repetitions included."""
        return self.rows.total()

    @property
    def repetitions(self) -> int:
        """Rows seen beyond the first time."""
        return self.rows.total() - len(self.rows)


def read_parquet(directory: Path) -> Account:
    """Return the account of a directory's Parquet files, in whatever order."""
    import pyarrow.parquet  # noqa: PLC0415 - heavy, and only the demo's end needs it

    account = Account()
    for path in sorted(directory.glob("*.parquet")):
        table = pyarrow.parquet.read_table(path, columns=["key", "value"])
        for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
            account.enter(key, value)
    return account


def mismatches(source: Account, acknowledged: Account, committed: Account) -> list[str]:
    """Return a sentence for each disagreement; empty when the books balance."""
    found: list[str] = []
    for name, account in (("acknowledged", acknowledged), ("in Parquet", committed)):
        missing = len(source.rows.keys() - account.rows.keys())
        strange = len(account.rows.keys() - source.rows.keys())
        if missing:
            found.append(f"not {name}: {counted(missing, 'row')} of the source")
        if strange:
            found.append(f"{name} and not in the source: {counted(strange, 'row')}")
        if account.repetitions != source.repetitions:
            found.append(f"{name} repeated: {counted(account.repetitions, 'row')}; in the source: {source.repetitions}")
        found.extend(
            f"carrier {carrier}: {counted(source.carriers[carrier], 'row')} in the source, "
            f"{account.carriers[carrier]} {name}"
            for carrier in sorted(source.carriers.keys() | account.carriers.keys())
            if source.carriers[carrier] != account.carriers[carrier]
        )
    return found


def table(columns: Iterable[tuple[str, Account]]) -> list[str]:
    """Return the books as lines: a row for each carrier, then the sum."""
    sides = list(columns)
    carriers = sorted({carrier for _, account in sides for carrier in account.carriers})
    lines = ["carrier" + "".join(f"{name:>15}" for name, _ in sides)]
    lines.extend(
        f"{carrier:<7}" + "".join(f"{account.carriers[carrier]:>15,}" for _, account in sides) for carrier in carriers
    )
    lines.append("all    " + "".join(f"{account.total:>15,}" for _, account in sides))
    return lines
