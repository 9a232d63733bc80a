"""Acts on the nodes of a cluster, and the lines that Apache Kafka's nodes may log at WARN and above meanwhile.

A line is expected if an act explains it: it lasts at the time of the line, and befalls the node or the topic that the
line names. The causes are in ``kafka_causes``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

FATAL = re.compile(r"fatal|metadata loading fault|Encountered .* fault|Unexpected error processing", re.IGNORECASE)
"""Lines of a Kafka node before it ends, or about a record that does not fit (``FaultHandler``): never expected."""
FIRST_CONTROLLER = 3000
_LINE = re.compile(r"(?P<time>\S+) \[(?P<thread>.*?)\] (?P<level>[A-Z]+) (?P<logger>\S+) - (?P<text>.*)")
_TIMED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_LEVELS = frozenset({"WARN", "ERROR", "FATAL"})
_LATE = timedelta(seconds=5)
"""How long after an act a line may be logged: fetchers and clients back off before they try again."""


class Act(NamedTuple):
    """A span of time in which something befalls nodes or topics.

    Attributes:
        kind: of what befalls them.
        subjects: ids of nodes, and names of topics.
        began: when it began, in local time, as logs have it.
        ended: when all was as before; None while it lasts.
    """

    kind: str
    subjects: tuple[str, ...]
    began: datetime
    ended: datetime | None = None

    def lasts_at(self, when: datetime) -> bool:
        """Whether the act lasts at a time, or has just ended."""
        return self.began <= when and (self.ended is None or when <= self.ended + _LATE)

    @property
    def befalls_a_controller(self) -> bool:
        """Whether a controller is among its subjects."""
        return any(one.isdigit() and int(one) >= FIRST_CONTROLLER for one in self.subjects)


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


class Complaint(NamedTuple):
    """A line of a log at WARN or above.

    Attributes:
        node_id: of the node that logged it.
        time: when, in local time.
        logger: its last name.
        text: the line, and the exception that the line after it names.
        before: the line before it of the same thread.
    """

    node_id: int
    time: datetime
    logger: str
    text: str
    before: str = ""

    def __str__(self) -> str:
        return f"{self.node_id} {self.time.isoformat(timespec='milliseconds')} {self.logger}: {self.text}"


def complaints_in(log: Path, node_id: int) -> list[Complaint]:
    """Return the lines at WARN and above of a log of Kafka's (slf4j-simple)."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    found, last_of_thread = [], dict[str, str]()
    for line, after in itertools.pairwise([*lines, ""]):
        match = _LINE.match(line) if _TIMED.match(line) else None
        if match is None:
            continue
        if match["level"] in _LEVELS:
            text = match["text"] if not after or _TIMED.match(after) else f"{match['text']} {after.strip()}"
            logger, before = match["logger"].rpartition(".")[2], last_of_thread.get(match["thread"], "")
            found.append(Complaint(node_id, datetime.fromisoformat(match["time"]), logger, text, before))
        last_of_thread[match["thread"]] = line
    return found


class Cause(NamedTuple):
    """Why nodes of Kafka log a line, and in which acts they do.

    The groups of the pattern bind it to an act: ``node`` and ``port`` are of a node that it befalls, ``topic`` is a
    topic that it befalls; ``written_ms`` is the time of a record, which is not after the line.

    Attributes:
        what: the cause, as a sentence.
        logger: the last name of the logger.
        pattern: of the text.
        kinds: of the acts; none: the cause needs no act.
        before: of the line before it of the same thread.
        of_itself: whether the act befalls the node that logs it.
        of_a_controller: whether the act befalls a controller.
    """

    what: str
    logger: str
    pattern: str
    kinds: frozenset[str]
    before: str = ""
    of_itself: bool = False
    of_a_controller: bool = False

    def explains(self, complaint: Complaint, acts: Iterable[Act], ids: Mapping[str, str]) -> bool:
        """Whether it is why a line was logged.

        Args:
            complaint: the line.
            acts: those that last at its time.
            ids: of the nodes, by port.
        """
        found = re.search(self.pattern, complaint.text) if complaint.logger == self.logger else None
        if found is None or not re.search(self.before, complaint.before):
            return False
        groups = found.groupdict()
        if "written_ms" in groups and int(groups["written_ms"]) > complaint.time.timestamp() * 1000:
            return False
        named = {groups[name] for name in ("node", "topic") if name in groups}
        named |= {ids.get(groups["port"], "")} if "port" in groups else set()
        named |= {str(complaint.node_id)} if self.of_itself else set()
        return not self.kinds or any(
            act.kind in self.kinds
            and named <= set(act.subjects)
            and (act.befalls_a_controller or not self.of_a_controller)
            for act in acts
        )


def unexpected(
    complaints: Iterable[Complaint], causes: Iterable[Cause], acts: Iterable[Act], ids: Mapping[str, str]
) -> list[Complaint]:
    """Return the lines that no act explains.

    Args:
        complaints: lines of the nodes of Kafka.
        causes: of lines that are expected.
        acts: of their cluster.
        ids: of all nodes, by port.
    """
    known, reasons = list(acts), list(causes)

    def is_explained(one: Complaint) -> bool:
        lasting = [act for act in known if act.lasts_at(one.time)]
        return not FATAL.search(one.text) and any(cause.explains(one, lasting, ids) for cause in reasons)

    return [one for one in complaints if not is_explained(one)]
