"""The model of a setting, and the parsed values of one scope.

Rules:
- A value is checked once, where its text is read; inside, a parsed value is trusted.
- A setting without a value of its own may take another's, with a factor (``log.retention.ms`` from minutes,
  else from hours); a topic setting takes its broker setting.
- The update mode of a setting is one of Kafka's three: read-only, per-broker, cluster-wide.

Source: Kafka's ConfigDef, DynamicBrokerConfig, ServerTopicConfigSynonyms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.java_text import double_text, java_double, java_int
from tidegauge.lazy_dataclasses import dataclass

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
SHORT_MAX = 2**15 - 1

Kind = Literal["int", "bool", "float", "text", "list"]
Unit = Literal["", "ms", "s", "min", "h", "bytes", "%", "records"]
Update = Literal["read-only", "per-broker", "cluster-wide"]


class Fallback(NamedTuple):
    """Another setting that gives the value if this one has none, times a factor (numbers only)."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: Kafka's name.
        kind: how its text is read.
        default: the parsed default; None if absence has a meaning of its own, or ``fallbacks`` decide.
        meaning: one sentence.
        unit: of a number.
        minimum, maximum: inclusive bounds of a number.
        choices: legal texts (for a list: legal members).
        update: whether it may be changed while brokers run, and for which scope.
        fallbacks: settings of the same scope to take the value from, the first that has one.
        broker_key: for a topic setting, the broker setting that gives its default.
        members: for a list, the pattern of each member, and its description in Kafka's words.
        illegal: a pattern of texts that are refused though the above allows them, and Kafka's sentence ({}: the text).
        bounds: Kafka's sentence about a number outside the bounds, if it has one of its own.
        has_effect: False if the setting is accepted, checked and shown, but changes nothing.
        is_sensitive: whether its value is never shown (Kafka's type PASSWORD).
    """

    name: str
    kind: Kind
    default: Any
    meaning: str
    unit: Unit = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    update: Update = "read-only"
    fallbacks: tuple[Fallback, ...] = ()
    broker_key: str | None = None
    members: tuple[str, str] | None = None
    illegal: tuple[str, str] | None = None
    bounds: str | None = None
    has_effect: bool = True
    is_sensitive: bool = False

    @property
    def dynamic(self) -> bool:
        """Whether it may change while the broker runs."""
        return self.update != "read-only"

    def parse(self, text: str) -> Any:
        """Read a value.

        Raises:
            TidegaugeError: INVALID_CONFIG, with the key, the value and the legal values.
        """
        given, text = text, text.strip()
        try:
            value = self._convert(text)
        except ValueError:
            raise self._refusal(given if self.kind == "bool" else text, self._not_of_its_type()) from None
        if self.kind in {"int", "float"} and not self._in_range(value):
            raise self._refusal(double_text(value) if self.kind == "float" else str(value), self._out_of_range(value))
        if self.illegal is not None and re.fullmatch(self.illegal[0], text):
            raise self._refusal(text, self.illegal[1].format(text))
        if self.choices:
            members = value if self.kind == "list" else [value]
            for member in members:
                if member not in self.choices:
                    raise self._refusal(member, f"String must be one of: {', '.join(self.choices)}")
        if self.members is not None and not all(re.fullmatch(self.members[0], member) for member in value):
            raise self._refusal(f"[{', '.join(value)}]", f"{self.name} must be {self.members[1]}")
        return value

    @property
    def type_name(self) -> str:
        """Kafka's name of the type: SHORT, INT, LONG, DOUBLE, BOOLEAN, STRING, LIST."""
        if self.kind == "int":
            return {LONG_MAX: "LONG", SHORT_MAX: "SHORT"}.get(int(self.maximum or 0), "INT")
        if self.is_sensitive:
            return "PASSWORD"
        return {"bool": "BOOLEAN", "float": "DOUBLE", "text": "STRING", "list": "LIST"}[self.kind]

    def _not_of_its_type(self) -> str:
        if self.kind == "bool":
            return "Expected value to be either true or false"
        return f"Not a number of type {self.type_name}"

    def _out_of_range(self, value: float) -> str:
        if self.bounds is not None:
            return self.bounds
        if self.minimum is not None and not value >= self.minimum:
            return f"Value must be at least {number_text(self.minimum)}"
        return f"Value must be no more than {number_text(self.maximum or 0)}"

    def _in_range(self, value: float) -> bool:
        # Written so that NaN is out of every range.
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)

    def _convert(self, text: str) -> Any:
        if self.kind == "int":
            number = java_int(text)
            largest = LONG_MAX if self.type_name == "LONG" else INT_MAX
            return number if -largest - 1 <= number <= largest else self._no(text)
        if self.kind == "float":
            return java_double(text)
        if self.kind == "bool":
            return {"true": True, "false": False}[text.lower()] if text.lower() in {"true", "false"} else self._no(text)
        if self.kind == "list":
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return text

    @staticmethod
    def _no(text: str) -> Any:
        raise ValueError(text)

    def legal(self) -> str:
        """Return a description of the legal values, for error messages."""
        if self.choices:
            return " or ".join(self.choices)
        if self.members is not None:
            return self.members[1]
        if self.kind == "bool":
            return "true or false"
        if self.kind in {"int", "float"}:
            noun = "a whole number" if self.kind == "int" else "a number"
            if self.minimum is not None and self.maximum is not None:
                return f"{noun} from {number_text(self.minimum)} to {number_text(self.maximum)}"
            if self.minimum is not None:
                return f"{noun}, at least {number_text(self.minimum)}"
            if self.maximum is not None:
                return f"{noun}, at most {number_text(self.maximum)}"
            return noun
        return "text"

    def text_of(self, value: Any) -> str:
        """Return the text of a parsed value in a properties file."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _refusal(self, text: str, why: str) -> TidegaugeError:
        """Return an error with Kafka's sentence (ConfigException), followed by the legal values."""
        return TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {text} for configuration {self.name}: {why}; it must be {self.legal()}",
        )


def number_text(value: float) -> str:
    """Return the text of a bound: all digits if it is an integer."""
    return str(int(value)) if value == int(value) else f"{value:g}"


def converted(value: Any, factor: int) -> Any:
    """Return a fallback's value in another setting's unit; negative (unlimited) becomes -1."""
    if factor == 1:
        return value
    return -1 if value < 0 else value * factor


@dataclass(frozen=True, slots=True)
class Values:
    """Parsed settings of one scope: the given values over the defaults.

    A broker's values are updated in place (``given``) when its dynamic settings change: an object may be held, but a
    setting must be read again wherever it is used.
    """

    table: Mapping[str, Setting]
    given: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return the value in force; raise KeyError for an unknown name."""
        given = self.given
        if name in given:  # most settings have their default: a KeyError for each would cost more than the rest
            return given[name]
        setting = self.table[name]
        for other, factor in setting.fallbacks:
            value = self[other]
            if value is not None:
                return converted(value, factor)
        return setting.default

    def integer(self, name: str) -> int:
        """Return the value of an int setting."""
        return int(self[name])

    def flag(self, name: str) -> bool:
        """Return the value of a bool setting."""
        return bool(self[name])

    def text(self, name: str) -> str:
        """Return the value of a text setting; empty if it is absent."""
        value = self[name]
        return "" if value is None else str(value)

    def of_listener(self, listener: str, name: str, otherwise: Any = None) -> Any:
        """Return what ``listener.name.LISTENER.NAME`` is set to; else ``otherwise``, or the setting's default."""
        default = self.table[name].default if otherwise is None else otherwise
        return self.given.get(f"listener.name.{listener.lower()}.{name}", default)

    def is_default(self, name: str) -> bool:
        """Return whether no value was given for the setting."""
        return name not in self.given
