"""What one side of a comparison gives: figures by name, and how they are printed side by side.

Figures are only ever compared within one run: the machines are shared and noisy, so a ratio means something and an
absolute number little.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Workload:
    """One cell of the table.

    Attributes:
        record_bytes: size of a record's value.
        partitions: of the topic.
        acks: ``1`` or ``all``.
        records: how many are written and read.
    """

    record_bytes: int
    partitions: int
    acks: str
    records: int

    @property
    def name(self) -> str:
        """How the table calls it."""
        return f"{self.record_bytes} B, {self.partitions} partition{'s' * (self.partitions > 1)}, acks={self.acks}"


@dataclass(slots=True)
class Figures:
    """One side's result for one workload."""

    produce_records_per_second: float = 0.0
    consume_records_per_second: float = 0.0
    latency_p50_ms: float = 0.0
    latency_p99_ms: float = 0.0


@dataclass(slots=True)
class Side:
    """All results of one side.

    Attributes:
        name: Tidegauge or Apache Kafka with its version.
        start_up_seconds: from nothing to the first acknowledged record.
        memory_bytes: resident memory of all brokers, after the workloads.
        figures: by the workload's name.
    """

    name: str
    start_up_seconds: float = 0.0
    memory_bytes: int = 0
    figures: dict[str, Figures] = field(default_factory=dict)


def workloads(quick: bool) -> list[Workload]:
    """The cells: record sizes, partitions and acks; fewer and smaller for a quick look."""
    volume = 10_000_000 if quick else 60_000_000
    sizes = (100, 1024) if quick else (100, 1024, 10240)
    return [
        Workload(size, partitions, acks, max(2_000, min(200_000, volume // size)))
        for size in sizes
        for partitions in (1, 12)
        for acks in ("1", "all")
    ]


def resident_bytes(pids: list[int]) -> int:
    """Resident memory of some processes together."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE")


def percentile(values: list[float], share: float) -> float:
    """The value below which a share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def markdown(ours: Side, theirs: Side | None) -> str:
    """The table; a ratio above 1 is in our favour."""
    lines = [
        "| workload | measure | " + ours.name + (f" | {theirs.name} | ratio |" if theirs else " |"),
        "|---|---|---|" + ("---|---|" if theirs else ""),
    ]

    def row(workload: str, measure: str, own: float, other: float | None, *, less_is_better: bool, form: str) -> None:
        cells = [workload, measure, form.format(own)]
        if theirs is not None and other is not None:
            ratio = (other / own if less_is_better else own / other) if own and other else 0.0
            cells += [form.format(other), f"{ratio:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")

    for name, own in ours.figures.items():
        other = theirs.figures.get(name) if theirs else None
        for measure, attribute, less, form in (
            ("produce, records/s", "produce_records_per_second", False, "{:,.0f}"),
            ("consume, records/s", "consume_records_per_second", False, "{:,.0f}"),
            ("latency p50, ms", "latency_p50_ms", True, "{:.2f}"),
            ("latency p99, ms", "latency_p99_ms", True, "{:.2f}"),
        ):
            theirs_value = None if other is None else getattr(other, attribute)
            row(name, measure, getattr(own, attribute), theirs_value, less_is_better=less, form=form)
    row(
        "-",
        "start-up to the first acknowledged record, s",
        ours.start_up_seconds,
        theirs.start_up_seconds if theirs else None,
        less_is_better=True,
        form="{:.2f}",
    )
    row(
        "-",
        "memory of all brokers, MB",
        ours.memory_bytes / 1e6,
        theirs.memory_bytes / 1e6 if theirs else None,
        less_is_better=True,
        form="{:,.0f}",
    )
    return "\n".join(lines)


def as_json(ours: Side, theirs: Side | None) -> str:
    """The same for machines."""
    return json.dumps({"ours": asdict(ours), "theirs": None if theirs is None else asdict(theirs)}, indent=2)
