"""Regular expressions of RE2's syntax against names: whole matches, in time that grows with the name alone.

Contract: an expression is run as an automaton, never by backtracking, so that none can hold up its caller; the work is
counted, and ends with ``MatchingTooLongError``.
Source: RE2/J, with which Kafka's TopicRegexResolver and TransactionStateManager match whole names; R. Cox, "Regular
Expression Matching Can Be Simple And Fast".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegauge_broker.coordinator.patterns.character_classes import WORD, Characters
from tidegauge_broker.coordinator.patterns.parser import (
    Choice,
    Node,
    One,
    PatternError,
    Position,
    Repeat,
    Sequence,
    parse,
)

__all__ = ["MatchingTooLongError", "Pattern", "PatternError", "resolve"]
MAX_WORK = 20_000_000
"""Limit of the states that are visited while expressions are resolved: some seconds."""
_MAX_CACHED = 20_000
"""Maximum number of transitions that are kept."""
_MATCH = 0


class MatchingTooLongError(Exception):
    """The work limit is reached."""


class Pattern:
    """An expression, compiled.

    Args:
        text: the expression.
        max_work: limit of the states that are visited.

    Attributes:
        work: the states that have been visited.

    Raises:
        PatternError: it is not of RE2's syntax, or too large.
    """

    def __init__(self, text: str, max_work: int = MAX_WORK) -> None:
        self.text = text
        self.work = 0
        self._max_work = max_work
        # Of a state: characters and the one state behind them, or a position (maybe none) and the states behind it.
        self._characters: list[Characters | None] = [None]
        self._positions: list[str] = [""]
        self._next: list[tuple[int, ...]] = [()]
        self._start = self._compiled(parse(text), _MATCH)
        self._cache: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Return whether the expression matches a whole name.

        Raises:
            MatchingTooLongError: the work limit is reached.
        """
        states = frozenset((self._start,))
        before = ""
        for one in name:
            key = states, before, one
            found = self._cache.get(key)
            if found is None:
                if len(self._cache) >= _MAX_CACHED:
                    self._cache.clear()
                found = self._cache[key] = self._step(states, before, one)
            if not found:
                return False
            states, before = found, one
        return _MATCH in self._closed(states, before, "")

    # Running

    def _step(self, states: frozenset[int], before: str, one: str) -> frozenset[int]:
        found: set[int] = set()
        for state in self._closed(states, before, one):
            characters = self._characters[state]
            if characters is not None and one in characters:
                found.update(self._next[state])
        return frozenset(found)

    def _closed(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """Return all states reached without a character between two (empty: none)."""
        found = set(states)
        pending = list(states)
        while pending:
            state = pending.pop()
            self.work += 1
            if self._characters[state] is None and _holds(self._positions[state], before, after):
                for following in self._next[state]:
                    if following not in found:
                        found.add(following)
                        pending.append(following)
        if self.work > self._max_work:
            raise MatchingTooLongError
        return found

    # Compiling

    def _add(self, characters: Characters | None, position: str, following: tuple[int, ...]) -> int:
        self._characters.append(characters)
        self._positions.append(position)
        self._next.append(following)
        return len(self._next) - 1

    def _compiled(self, node: Node, behind: int) -> int:
        """Return a node's first state, if ``behind`` follows the node."""
        if isinstance(node, One):
            return self._add(node.characters, "", (behind,))
        if isinstance(node, Position):
            return self._add(None, node.kind, (behind,))
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                behind = self._compiled(part, behind)
            return behind
        if isinstance(node, Choice):
            return self._add(None, "", tuple(self._compiled(option, behind) for option in node.options))
        return self._repeated(node, behind)

    def _repeated(self, node: Repeat, behind: int) -> int:
        if node.most is None:
            loop = self._add(None, "", ())
            self._next[loop] = (self._compiled(node.node, loop), behind)
            behind = loop
        else:
            end = behind
            for _ in range(node.most - node.least):
                behind = self._add(None, "", (self._compiled(node.node, behind), end))
        for _ in range(node.least):
            behind = self._compiled(node.node, behind)
        return behind


def _holds(position: str, before: str, after: str) -> bool:
    if not position:
        return True
    if position in _LIMITS:
        is_begin, ends = _LIMITS[position]
        return (before if is_begin else after) in ends
    is_boundary = (before in WORD) != (after in WORD)
    return is_boundary == (position == "b")


_LIMITS = {
    "begin": (True, frozenset(("",))),
    "end": (False, frozenset(("",))),
    "begin of line": (True, frozenset(("", "\n"))),
    "end of line": (False, frozenset(("", "\n"))),
}
"""Whether a position looks behind, and the expected character there."""


def resolve(regexes: Iterable[str], names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the names that each expression matches.

    Raises:
        MatchingTooLongError: the work limit is reached.
        PatternError: an expression is not of RE2's syntax, or too large.
    """
    all_names = list(names)
    found: dict[str, frozenset[str]] = {}
    spent = 0
    for regex in regexes:
        pattern = Pattern(regex, MAX_WORK - spent)
        found[regex] = frozenset(name for name in all_names if pattern.matches(name))
        spent += pattern.work
    return found
