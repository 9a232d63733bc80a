"""Ranges of records of a share partition as scenario files write them: read, compared and shown. Pure.

``4: available x2`` says that offset 4 is available and was delivered twice; ``0-3: acquired x1 by a`` that member a has
offsets 0 to 3. Omitted parts are not compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tidegauge_client.share_views import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, NONE, UNKNOWN, Records
from tidegauge_lab.scenario.yaml_reader import MalformedYaml, Mapping, Node, Scalar

_STATES = (AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED, UNKNOWN, NONE)
_OFFSETS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_WORDS = re.compile(rf"({'|'.join(_STATES)})(?: x(\d{{1,5}}))?(?: by (\S+))?( \(being written\))?")
_FORM = "STATE, STATE xCOUNT or STATE xCOUNT by MEMBER"


class Range(NamedTuple):
    """Records with consecutive offsets as they shall be.

    Attributes:
        last_offset: inclusive.
        delivery_count: None: any.
        member_id: None: any.
    """

    first_offset: int
    last_offset: int
    state: str
    delivery_count: int | None = None
    member_id: str | None = None
    is_being_written: bool = False

    def __str__(self) -> str:
        return f"{_offsets(self.first_offset, self.last_offset)}: {self._words()}"

    def _words(self) -> str:
        return _words(self.state, self.delivery_count, self.member_id, is_being_written=self.is_being_written)


def ranges(node: Node) -> tuple[Range, ...]:
    """Read ``{OFFSETS: STATE ...}``; none of them: ``{}``."""
    if not isinstance(node, Mapping):
        raise MalformedYaml(node.line, "offsets with the state of their records are expected, such as {0-3: available}")
    return tuple(_range(key, value, node.key_lines[key]) for key, value in node.entries.items())


def _range(key: str, value: Node, line: int) -> Range:
    offsets = _OFFSETS.fullmatch(key)
    if offsets is None:
        raise MalformedYaml(line, f"an offset or FIRST-LAST is expected, not {key!r}")
    first = int(offsets[1])
    last = int(offsets[2]) if offsets[2] else first
    if last < first:
        raise MalformedYaml(line, f"offsets are written FIRST-LAST, not {key!r}")
    words = _WORDS.fullmatch(value.text) if isinstance(value, Scalar) else None
    if words is None:
        raise MalformedYaml(line, f"{_FORM} is expected; STATE is {', '.join(_STATES)}")
    count = None if words[2] is None else int(words[2])
    return Range(first, last, words[1], count, words[3], words[4] is not None)


def difference(wanted: Sequence[Range], found: Sequence[Records], what: str) -> list[str]:
    """Return the differences of records from the wanted ones."""
    if len(wanted) == len(found) and all(_fits(*pair) for pair in zip(wanted, found, strict=True)):
        return []
    return [f"{what} {_shown(found)}, not {', '.join(map(str, wanted)) or 'none'}"]


def _fits(wanted: Range, found: Records) -> bool:
    return (
        (wanted.first_offset, wanted.last_offset, wanted.state) == (found.first_offset, found.last_offset, found.state)
        and wanted.delivery_count in {None, found.delivery_count}
        and wanted.member_id in {None, found.member_id}
        and wanted.is_being_written == found.is_being_written
    )


def _shown(records: Sequence[Records]) -> str:
    return ", ".join(f"{_offsets(one.first_offset, one.last_offset)}: {_of(one)}" for one in records) or "none"


def _of(one: Records) -> str:
    return _words(one.state, one.delivery_count, one.member_id or None, is_being_written=one.is_being_written)


def _offsets(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _words(state: str, count: int | None, member: str | None, *, is_being_written: bool) -> str:
    times = "" if count is None else f" x{count}"
    whose = "" if member is None else f" by {member}"
    return f"{state}{times}{whose}{' (being written)' if is_being_written else ''}"
