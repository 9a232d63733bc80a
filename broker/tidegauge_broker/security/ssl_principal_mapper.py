r"""From the subject of a client's certificate to the name of its principal: ``ssl.principal.mapping.rules``. Pure.

Rules (KIP-371):
    1. The first rule that matches the whole subject gives the name; ``DEFAULT`` matches every one and leaves it alone.
    2. ``RULE:pattern/replacement/`` replaces, and a final L or U makes lower or upper case of the result. ``$1`` in a
       replacement is a group of the pattern, ``\`` takes the next character as it is; a group that the pattern lacks
       stays text.
    3. If no rule matches, the client has no principal, and its connection is closed.

Patterns mean what they mean to Java (``java_patterns``); one that can't be taken over is refused at the start.
Source: ``SslPrincipalMapper``, ``DefaultKafkaPrincipalBuilder.applySslPrincipalMapper``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tidegauge.principal import USER, Principal
from tidegauge_broker.security.java_patterns import compiled

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*(?P<rule>{_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE)
_DIGITS = frozenset("0123456789")
_LOWER, _UPPER = "L", "U"


class NoMatchingRule(Exception):
    """No rule applies to a subject; rule 3."""


class _Rule(NamedTuple):
    """One rule; the default one has no pattern.

    Attributes:
        pattern: as it is matched.
        text: the pattern as the setting has it.
    """

    pattern: re.Pattern[str] | None
    text: str = ""
    replacement: str = ""
    letters: str = ""

    def __str__(self) -> str:
        if self.pattern is None:
            return "DEFAULT"
        replacement = f"/{self.replacement}"
        return f"RULE:{self.text}{replacement}{'/' if self.letters else ''}{self.letters}"

    def apply(self, subject: str) -> str | None:
        """Return the rule's name for a subject; None if it does not match."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(self._replaced, subject)
        if self.letters == _LOWER:
            return name.lower()
        return name.upper() if self.letters == _UPPER else name

    def _replaced(self, found: re.Match[str]) -> str:
        return "".join(_expanded(self.replacement, found))


class SslPrincipalMapper:
    """The rules of one listener; see the module.

    Args:
        rules: the text of the setting.

    Raises:
        ValueError: a rule is malformed.
    """

    def __init__(self, rules: str) -> None:
        self._rules = [rule for text in _split(rules) if (rule := _parsed(text)) is not None]

    def __str__(self) -> str:
        """Return the rules in Kafka's form."""
        return f"[{', '.join(map(str, self._rules))}]"

    def principal(self, subject: str) -> Principal:
        """Return the principal of a certificate's subject.

        Raises:
            NoMatchingRule: see there.
        """
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return Principal(USER, name)
        raise NoMatchingRule(f"No rules apply to {subject}, rules {self}")


def _split(rules: str) -> Iterator[str]:
    """Yield the texts of the rules; a comma within a rule's pattern separates nothing."""
    for found in _SPLITTER.finditer(rules.strip()):
        yield found["rule"]


def _parsed(text: str) -> _Rule | None:
    """Return a rule; None for an empty one, which is left out."""
    found = _PARSER.match(text)
    assert found is not None, "the last alternative matches everything"
    if found.end() != len(text):
        raise ValueError(f"Invalid rule: `{text}`, unmatched substring: `{text[found.end() :]}`")
    default, pattern, replacement, letters, _ = found.groups()
    if default is not None:
        return _Rule(None)
    if pattern is None:
        return None
    try:
        rule = _Rule(compiled(pattern), pattern, replacement, letters)
    except ValueError as problem:
        raise ValueError(f"Invalid rule: `{text}`, its pattern can't be read: {problem}") from None
    _check_replacement(text, replacement, rule.pattern.groups if rule.pattern else 0)
    return rule


def _check_replacement(rule: str, replacement: str, groups: int) -> None:
    """Refuse a replacement that Java would refuse for every subject."""
    stripped = re.sub(r"\\.", "", replacement)
    lone = re.search(r"\$(?![0-9])", stripped)
    if lone is not None:
        raise ValueError(f"Invalid rule: `{rule}`, $ without a number in its replacement; write \\$")
    if not groups and re.search(r"\$[1-9]", stripped):
        raise ValueError(f"Invalid rule: `{rule}`, its pattern has no group")


def _expanded(replacement: str, found: re.Match[str]) -> Iterator[str]:
    """Yield the parts of a replacement, groups filled in; rule 2."""
    at, groups = 0, found.re.groups
    while at < len(replacement):
        letter = replacement[at]
        at += 1
        if letter == "\\" and at < len(replacement):
            yield replacement[at]
            at += 1
        elif letter == "$" and replacement[at : at + 1] in _DIGITS:
            end = at + 1
            # As many digits as still name a group (Matcher.appendReplacement).
            while replacement[end : end + 1] in _DIGITS and int(replacement[at : end + 1]) <= groups:
                end += 1
            number = int(replacement[at:end])
            yield found[number] or "" if number <= groups else f"${replacement[at:end]}"
            at = end
        else:
            yield letter
