"""Prometheus' text format 0.0.4, as strict as its readers are. Pure.

Rules: a family's HELP and TYPE appear once, before its samples. Names and label names have Prometheus' alphabet. In
label values backslash, quote and line feed are escaped, in HELP backslash and line feed. No sample appears twice.
Source: prometheus.io, exposition formats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["gauge", "counter", "summary"]
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(slots=True)
class Family:
    """One metric with all its samples.

    Attributes:
        name: of the family; a counter's ends in ``_total`` or ``_count``.
        samples: suffix of the name (``_count`` and ``_sum`` of a summary, else empty), labels, value.
    """

    name: str
    kind: Kind
    meaning: str
    samples: list[tuple[str, Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float, suffix: str = "", **labels: str) -> None:
        """Add a sample."""
        self.samples.append((suffix, labels, value))


def gauge(name: str, meaning: str, value: float) -> Family:
    """Return a gauge with one sample that has no labels."""
    return _sampled(Family(name, "gauge", meaning), value)


def counter(name: str, meaning: str, value: float) -> Family:
    """Return a counter with one sample that has no labels."""
    return _sampled(Family(name, "counter", meaning), value)


def _sampled(family: Family, value: float) -> Family:
    family.add(value)
    return family


def exposition(families: Iterable[Family]) -> str:
    """Return the page that Prometheus reads; families without samples are left out.

    Raises:
        ValueError: a name is illegal, or a family or a sample appears twice.
    """
    seen: set[str] = set()
    lines: list[str] = []
    for family in families:
        if not _NAME.fullmatch(family.name) or family.name in seen:
            raise ValueError(f"the metric {family.name!r} appears twice or has an illegal name")
        seen.add(family.name)
        if family.samples:
            lines.extend(_family(family))
    return "\n".join([*lines, ""])


def _family(family: Family) -> Iterator[str]:
    meaning = family.meaning.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family.name} {meaning}"
    yield f"# TYPE {family.name} {family.kind}"
    seen: set[str] = set()
    for suffix, labels, value in family.samples:
        sample = f"{family.name}{suffix}{_labels(labels)}"
        if sample in seen:
            raise ValueError(f"the sample {sample} appears twice")
        seen.add(sample)
        yield f"{sample} {_number(value)}"


def _labels(labels: Mapping[str, str]) -> str:
    for name in labels:
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            raise ValueError(f"{name!r} is no name for a label")
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
