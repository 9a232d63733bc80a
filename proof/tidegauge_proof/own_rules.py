"""Rules of the caller, run in the brokers' own core: a few lines of Python that stand for one decision. Pure.

A text defines one or more of these functions; whatever it leaves out is decided as Kafka does:

| function | decides |
|---|---|
| ``truncate(epochs, end, high_watermark, leader_epoch, leader_end)`` | where a follower truncates its log when it begins to follow: an offset, or ``(offset, True)`` to truncate there and ask the leader again |
| ``high_watermark(current, leader_end, ends)`` | how far the leader's high watermark may rise; ``ends`` has the log end of each follower in sync, as far as the leader knows |
| ``elect(assigned, live, in_sync)`` | who leads after the loss of a leader: a broker's id, or None |

``epochs`` is a list of ``(epoch, first offset)`` of the follower's own log, ``end`` its log end. ``leader_epoch`` and
``leader_end`` are the leader's response to where the follower's last epoch ends: the largest epoch of the leader's that
is not above it, and the end of that one; both None if the leader has none. End offsets are exclusive.

Rules:
    1. An exception of a function, or a result that is no decision, never reaches the core: it is kept as ``fault``,
       a sentence, and Kafka's own decision is taken.
    2. A call ends: after ``MOST_LINES`` executed lines it is broken off, as a fault; a text has no ``try``, which could
       keep it from that.
    3. A text is Python and may do whatever the process may do. The caller announces it before; a page runs it in the
       browser's sandbox.
"""  # noqa: E501 - a table's row is one line

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterable
from types import FrameType
from typing import Any

from tidegauge.in_sync import FollowerProgress, bounds_high_watermark, high_watermark_bound
from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import EpochEnd
from tidegauge_broker.replica.rules.kip_320 import Kip320Rule
from tidegauge_broker.replica.rules.tried import HighWatermarkBound

PARAMETERS = {
    "truncate": ("epochs", "end", "high_watermark", "leader_epoch", "leader_end"),
    "high_watermark": ("current", "leader_end", "ends"),
    "elect": ("assigned", "live", "in_sync"),
}
"""The functions and their parameters, by name and in order."""
NAME = "own"
"""The name of a user's own truncation rule in verdicts and pictures."""
MOST_CHARACTERS = 10_000
MOST_LINES = 20_000


class OwnRuleError(ValueError):
    """A text that defines no rule; the message is a sentence for people."""


class _EndlessError(BaseException):
    """A call that did not end within ``MOST_LINES`` lines."""

    def __init__(self) -> None:
        super().__init__(f"it does not end: {MOST_LINES} lines were executed")


class OwnRules:
    """The rules of one text (``replica.rules.tried.TriedRules``).

    Args:
        source: the text.
        name: how faults call it.

    Attributes:
        fault: the first fault, in a sentence; empty while there is none.
        name: how faults call the text.
        names: the functions that the text defines.
        truncation: the truncation rule, if it has one.
        high_watermark_bound: the bound of the high watermark, if it has one.
        election: whom it elects, if it decides that.

    Raises:
        OwnRuleError: the text defines none of the functions, or is no Python.
    """

    def __init__(self, source: str, name: str = "the rule") -> None:
        self.fault = ""
        self.name = name
        self._functions = _functions_of(source, name)
        self.names = tuple(self._functions)
        self.truncation = OwnTruncation(self) if "truncate" in self._functions else None
        self.high_watermark_bound: HighWatermarkBound | None = (
            self._bound if "high_watermark" in self._functions else None
        )
        self.election = self._elect if "elect" in self._functions else None

    def call(self, function: str, *values: Any) -> Any:
        """Return the result of a function; None, and a fault, if it fails."""
        try:
            return _bounded(self._functions[function], values)
        except (Exception, _EndlessError) as problem:  # noqa: BLE001 - whatever it is, it is a fault of the text
            self.note(function, f"raises {type(problem).__name__}: {problem}{_line_of(problem, self.name)}")
            return None

    def note(self, function: str, what: str) -> None:
        """Keep the first fault."""
        self.fault = self.fault or f"{function} in {self.name} {what}"

    def offset(self, function: str, found: Any, most: int) -> int | None:
        """Return an offset that a function has returned, if it is one."""
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= most:
            return found
        self.note(function, f"returns {str(found)[:60]!r}; it must return an offset from 0 to {most}")
        return None

    def _bound(
        self,
        high_watermark: int,
        followers: Iterable[FollowerProgress],
        leader_log_end_offset: int,
        maximal_isr: Collection[int],
        live: Collection[int],
        now_ms: int,
        lag_time_max_ms: int,
    ) -> int:
        kept = list(followers)
        facts = (leader_log_end_offset, maximal_isr, live, now_ms, lag_time_max_ms)
        ends = {one.broker_id: max(0, one.log_end_offset) for one in kept if bounds_high_watermark(one, *facts)}
        found = self.call("high_watermark", high_watermark, leader_log_end_offset, ends)
        offset = self.offset("high_watermark", found, leader_log_end_offset)
        return high_watermark_bound(kept, *facts) if offset is None else offset

    def _elect(self, assigned: tuple[int, ...], live: tuple[int, ...], in_sync: tuple[int, ...]) -> int | None:
        found = self.call("elect", list(assigned), list(live), list(in_sync))
        if found is None or (found in live and not isinstance(found, bool)):
            return int(found) if found is not None else None
        self.note("elect", f"returns {str(found)[:60]!r}; it must return one of the live replicas {live}, or None")
        return next((one for one in live if one in in_sync), None)


class OwnTruncation(Kip320Rule):
    """A truncation rule whose follower looks its last epoch up and truncates where a function says.

    Everything else is as under KIP-320, but for the epoch of the last record, which no fetch carries: so nothing but
    the function finds out where two logs part.
    """

    name = NAME

    def __init__(self, rules: OwnRules) -> None:
        self._rules = rules

    def epoch_to_look_up(self, epochs: EpochCache) -> int | None:
        """Return the replica's own latest epoch."""
        return epochs.latest_epoch

    def fetch_epochs(self, leader_epoch: int, epochs: EpochCache) -> tuple[int | None, int | None]:
        """Return the leader epoch alone."""
        del epochs
        return leader_epoch, None

    def truncation_offset(
        self, leader_end: EpochEnd, epochs: EpochCache, log_end_offset: int, high_watermark: int
    ) -> tuple[int, bool]:
        """Return the function's decision; it may ask again only after a partial truncation."""
        theirs = (None, None) if leader_end.is_undefined else (leader_end.epoch, leader_end.end_offset)
        own = [(one.epoch, one.start_offset) for one in epochs.entries]
        found = self._rules.call("truncate", own, log_end_offset, high_watermark, *theirs)
        asks_again = isinstance(found, tuple) and len(found) == 2 and found[1] is True
        offset = self._rules.offset("truncate", found[0] if asks_again else found, log_end_offset)
        if offset is None:
            return super().truncation_offset(leader_end, epochs, log_end_offset, high_watermark)
        leaves = bool(own) and own[0][1] < offset < log_end_offset
        return offset, not (asks_again and leaves)


def _functions_of(source: str, name: str) -> dict[str, Callable[..., Any]]:
    if len(source) > MOST_CHARACTERS:
        raise OwnRuleError(f"{name} has {len(source)} characters; at most {MOST_CHARACTERS} are read")
    try:
        tree = ast.parse(source, name)
        if any(isinstance(one, ast.Try | ast.TryStar) for one in ast.walk(tree)):
            raise OwnRuleError(f"{name} has a try; a rule does without")
        code = compile(tree, name, "exec")
        names: dict[str, Any] = {"__name__": "rule"}
        _bounded(lambda: exec(code, names), ())  # noqa: S102 - that is what the text is for (rule 3)
    except OwnRuleError:
        raise
    except SyntaxError as problem:
        raise OwnRuleError(f"{name} is no Python: {problem.msg} (line {problem.lineno})") from None
    except (Exception, _EndlessError) as problem:  # noqa: BLE001 - whatever it is, it is a fault of the text
        raise OwnRuleError(f"{name} raises {type(problem).__name__}: {problem}{_line_of(problem, name)}") from None
    found = {one: names[one] for one in PARAMETERS if callable(names.get(one))}
    if not found:
        wanted = ", ".join(f"{one}({', '.join(parameters)})" for one, parameters in PARAMETERS.items())
        raise OwnRuleError(f"{name} defines no rule; write one of these functions: {wanted}")
    for one, function in found.items():
        _check_parameters(one, function, name)
    return found


def _check_parameters(one: str, function: Callable[..., Any], name: str) -> None:
    code = getattr(function, "__code__", None)
    given = () if code is None else code.co_varnames[: code.co_argcount]
    if given != PARAMETERS[one]:
        raise OwnRuleError(f"{one} in {name} takes ({', '.join(given)}); it must take ({', '.join(PARAMETERS[one])})")


def _bounded(function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    """Call a function, and break it off after ``MOST_LINES`` lines."""
    left = MOST_LINES

    def traced(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal left
        del frame, value
        left -= event == "line"
        if left < 0:
            raise _EndlessError
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        return function(*values)
    finally:
        sys.settrace(before)


def _line_of(problem: BaseException, name: str) -> str:
    """Return the line of the text that raised, in words; empty if none did."""
    line, at = 0, problem.__traceback__
    while at is not None:
        line = at.tb_lineno if at.tb_frame.f_code.co_filename == name else line
        at = at.tb_next
    return f" (line {line})" if line else ""
