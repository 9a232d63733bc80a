"""Writes down every event and every effect of a coordinator, as a text that is kept in ``transcripts``."""

from __future__ import annotations

import difflib
import os
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.unit.coordinator.driven import Driven

from tidegauge_broker.coordinator.effects import Append, Effect, LogLine, Note, ReadLog, Respond
from tidegauge_broker.coordinator.events import Appended, RecordsRead

DIRECTORY = Path(__file__).with_name("transcripts")
REWRITE = "REWRITE_TRANSCRIPTS"


class Transcribing(Driven):
    """Wraps the harness whose events and effects are written down."""

    def __init__(self, about: str, **settings) -> None:
        self.lines_of_story = [*(f"# {line}" for line in textwrap.wrap(about, 110)), ""]
        super().__init__(**settings)

    def record_words(self, batch) -> str:
        """Say what records hold."""
        raise NotImplementedError

    def event(self, event) -> None:
        self._write(f"{self.now_ms - 1_000_000:6} ms  <- {self._event_words(event)}")
        super().event(event)

    def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self._write(f"           {self._effect_words(effect)}")
        super().carry_out(effects)

    def after(self, delay_ms: int) -> None:
        if delay_ms:
            self._write(f"           ... {delay_ms} ms pass")
        super().after(delay_ms)

    def elect(self, epoch: int, partition: int = 0) -> None:
        self._write(f"{self.now_ms - 1_000_000:6} ms  <- Elected in epoch {epoch}")
        super().elect(epoch, partition)

    def resign(self, epoch: int | None, partition: int = 0) -> None:
        self._write(f"{self.now_ms - 1_000_000:6} ms  <- Resigned in epoch {epoch}")
        super().resign(epoch, partition)

    def say(self, text: str) -> None:
        self.lines_of_story += ["", *(f"# {line}" for line in textwrap.wrap(text, 110))]

    def _event_words(self, event) -> str:
        if hasattr(event, "request"):
            return f"request {event.token}: {event.request}"
        if isinstance(event, Appended):
            return f"append {event.append_id} ended with {event.error.name} at offset {event.base_offset}"
        if isinstance(event, RecordsRead):
            return f"read {self.record_words(event.batches)}"
        return str(event)

    def _effect_words(self, effect: Effect) -> str:
        if isinstance(effect, Respond):
            return f"respond to {effect.token}: {effect.result}"
        if isinstance(effect, Append):
            return f"append {effect.append_id}, acks={effect.acks}: {self.record_words(effect.batch)}"
        if isinstance(effect, Note):
            fields = ", ".join(f"{name} {value}" for name, value in effect.fields.items())
            return f"event {effect.kind} {effect.key} by {effect.cause}: {fields}"
        if isinstance(effect, LogLine):
            return f"log {effect.level}: {effect.text}"
        if isinstance(effect, ReadLog):
            return f"read the log of partition {effect.partition}"
        return str(effect)

    def _write(self, line: str) -> None:
        self.lines_of_story += textwrap.wrap(
            line, 118, subsequent_indent=" " * 15, drop_whitespace=False, break_long_words=False, break_on_hyphens=False
        )

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines_of_story) + "\n"


def assert_the_same(story: Callable[[], Transcribing], directory: Path) -> None:
    """Compare a story with its file, or write the file if requested."""
    path = directory / f"{story.__name__}.txt"
    text = story().text()
    if os.environ.get(REWRITE):
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    known = path.read_text(encoding="utf-8")
    assert known == text, "\n".join(difflib.unified_diff(known.splitlines(), text.splitlines(), lineterm=""))
