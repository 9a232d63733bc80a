"""The demo's lines, and its progress: bars on a terminal, plain lines otherwise. NO_COLOR is honoured.

A line is written as it is, whatever the width of the terminal, beside bars too: rich would break it at words and colour
its numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_STEP = 0.1
"""Off a terminal, a line is printed at each tenth."""


_stdout_is_for_json = False
_beside_bars: Console | None = None
"""Where lines go while there are bars, which stay below them."""


class Progress(Protocol):
    """The three counts."""

    def show(self, *, sent: int, acknowledged: int, committed: int) -> None:
        """Show them."""


class _PlainProgress:
    """Lines, a few of them."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._next_share = 0.0

    def show(self, *, sent: int, acknowledged: int, committed: int) -> None:
        share = min(acknowledged, committed) / self._total
        if share >= self._next_share:
            self._next_share = share + PLAIN_STEP
            tell(
                f"  sent {sent:>9,}   acknowledged {acknowledged:>9,}   in Parquet {committed:>9,}   of {self._total:,}"
            )


class _BarProgress:
    """Three bars."""

    def __init__(self, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415 - only a terminal needs it

        self.bars = Progress(TextColumn("{task.description:>14}"), BarColumn(), MofNCompleteColumn(), transient=True)
        self._sent, self._acknowledged, self._committed = (
            self.bars.add_task(name, total=total) for name in ("sent", "acknowledged", "in Parquet")
        )

    def show(self, *, sent: int, acknowledged: int, committed: int) -> None:
        self.bars.update(self._sent, completed=sent)
        self.bars.update(self._acknowledged, completed=acknowledged)
        self.bars.update(self._committed, completed=committed)


def tell(text: str = "") -> None:
    """One line of the story, seen at once: on stdout, or on stderr when stdout is for JSON."""
    if _beside_bars is not None:
        _beside_bars.print(text, soft_wrap=True, highlight=False, markup=False, emoji=False)
        return
    stream = sys.stderr if _stdout_is_for_json else sys.stdout
    stream.write(text + "\n")
    stream.flush()


def keep_stdout_for_json() -> None:
    """Write the story to stderr from now on."""
    global _stdout_is_for_json  # noqa: PLW0603 - one process tells one story
    _stdout_is_for_json = True


@contextmanager
def progress(total: int) -> Iterator[Progress]:
    """Show progress towards a total while the block runs."""
    global _beside_bars  # noqa: PLW0603 - one process tells one story
    if _stdout_is_for_json or not sys.stdout.isatty():
        yield _PlainProgress(total)
        return
    bars = _BarProgress(total)
    with bars.bars:
        _beside_bars = bars.bars.console
        try:
            yield bars
        finally:
            _beside_bars = None
