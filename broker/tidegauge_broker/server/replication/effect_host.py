"""The targets of the core's effects besides the logs: waiting clients, the controller, the fetchers, both logs.

Contract: the port ``Host`` of the effect executor in the broker process. Tokens are futures of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegauge.control import IsrProposal
from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effect_executor import FetchResults
from tidegauge_broker.replica.effects import Effect, LeadershipChanged, LogLine, Note
from tidegauge_broker.replica.messages import DeleteRecordsResult, ProduceResult
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.replication.request_token import FetchToken

LOG = logging.getLogger("tidegauge.replica")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _ignore(_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Outlets:
    """The calls from a broker's replicas to the process around them.

    Attributes:
        propose_isr: called with each proposal for the controller.
        fetchers_changed: called with the leaders whose fetchers must look again.
        leadership_changed: called with each leadership of a coordinator's partition that was gained or lost, within
            the step: before the response to its control request, and before anything else happens on the event loop.
        log_dir_failed: called with a log directory that went offline.
        replicas_failed: called when replicas went offline although their directory did not.
        halt: called with a defect of the core; must end the process at once.
    """

    propose_isr: Callable[[IsrProposal], None] = _ignore
    fetchers_changed: Callable[[Sequence[int]], None] = _ignore
    leadership_changed: Callable[[LeadershipChanged], None] = _ignore
    log_dir_failed: Callable[[Path], None] = _ignore
    replicas_failed: Callable[[], None] = lambda: None
    halt: Callable[[Exception], None] = _ignore


class EffectHost:
    """The host of the core's effects.

    Args:
        events: the event log.
        outlets: the process around the replicas.
        replicas_failed: called with replicas that went offline.
    """

    def __init__(
        self,
        events: EventLogWriter,
        outlets: Outlets,
        replicas_failed: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        self.propose_isr = outlets.propose_isr
        self.fetchers_changed = outlets.fetchers_changed
        self.leadership_changed = outlets.leadership_changed
        self.replicas_failed = replicas_failed
        self._events = events

    def is_waiting(self, token: object) -> bool:
        """Whether the future still waits for a result."""
        assert isinstance(token, asyncio.Future)
        return not token.done()

    def limit_bytes(self, token: object, max_bytes: int) -> int:
        """Return what the memory for responses allows."""
        assert isinstance(token, FetchToken)
        return max_bytes if token.room is None else token.room.limit_bytes(max_bytes)

    def respond_to_produce(self, token: object, results: Sequence[ProduceResult]) -> None:
        """Set the future's result, unless its caller has left."""
        assert isinstance(token, asyncio.Future)
        if not token.done():
            token.set_result(results)

    def respond_to_fetch(self, token: object, results: FetchResults) -> None:
        """Set the future's result and count its bytes, unless its caller has left."""
        assert isinstance(token, FetchToken)
        if token.room is not None and not token.done():
            token.room.hold(sum([len(records) for _, records in results]))
        self._set_result(token, results)

    def respond_to_delete_records(self, token: object, results: Sequence[DeleteRecordsResult]) -> None:
        """Set the future's result, unless its caller has left."""
        self._set_result(token, results)

    @staticmethod
    def _set_result(token: object, result: object) -> None:
        assert isinstance(token, asyncio.Future)
        if not token.done():
            token.set_result(result)

    def note(self, note: Note) -> None:
        """Write an event."""
        self._events.note(note.kind, note.cause, note.fields, note.topic_partition)

    def say(self, line: LogLine) -> None:
        """Write a log line."""
        LOG.log(_LEVELS[line.level], "%s", line.text)

    def effect_failed(self, effect: Effect, topic_partition: TopicPartition | None, problem: Exception) -> None:
        """Write which effect of which partition failed; an error outside the table is a defect."""
        name = type(effect).__name__
        if isinstance(problem, TidegaugeError):
            LOG.error("%s failed at %s: %s: %s", name, topic_partition, problem.code.name, problem.message)
        else:
            LOG.critical("%s failed at %s, which is a defect: %r", name, topic_partition, problem, exc_info=problem)
