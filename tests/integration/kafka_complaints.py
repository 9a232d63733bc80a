"""What befalls the nodes of a cluster, act by act, and what Apache Kafka's nodes may log meanwhile."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple


class Act(NamedTuple):
    """A span of time in which something befalls nodes or topics.

    Attributes:
        kind: of what befalls them.
        subjects: ids of nodes, or names of topics.
        began: when it began, in local time, as logs have it.
        ended: when all was as before; None while it lasts.
    """

    kind: str
    subjects: tuple[str, ...]
    began: datetime
    ended: datetime | None = None

    def lasts_at(self, when: datetime) -> bool:
        """Whether the act lasts at a time."""
        return self.began <= when and (self.ended is None or when <= self.ended)


class Acts:
    """All acts of one cluster.

    Args:
        record: a file that gets a line of JSON for each act.
    """

    def __init__(self, record: Path) -> None:
        self._record, self.all = record, list[Act]()

    @contextlib.contextmanager
    def during(self, kind: str, *subjects: str | int) -> Iterator[None]:
        """Note an act that lasts as long as the block; acts may overlap."""
        began, place = _now(), len(self.all)
        self.all.append(Act(kind, tuple(map(str, subjects)), began))
        try:
            yield
        finally:
            self.all[place] = act = self.all[place]._replace(ended=_now())
            with self._record.open("a", encoding="utf-8") as file:
                file.write(json.dumps([act.kind, act.subjects, str(act.began), str(act.ended)]) + "\n")


def _now() -> datetime:
    return datetime.now()  # noqa: DTZ005 - local time, as in Kafka's logs
