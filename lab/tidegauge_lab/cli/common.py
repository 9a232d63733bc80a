"""What the lab's verbs share: the exit code of a time limit, and how processes are called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tidegauge.cli import EXIT_TIME_LIMIT, fail, tells_errors
from tidegauge_lab.waiting import TimeLimitError


def lab_verb(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a verb so that its errors become one sentence, and its own time limit exit code 124."""

    @functools.wraps(command)
    def limited(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except TimeLimitError as error:
            fail(error.message, str(options.get("output", "text")), code=error.code, exit_code=EXIT_TIME_LIMIT)

    return tells_errors(limited)


def called(process: str) -> str:
    """A process's name for people: ``broker 1``, ``ZooKeeper``."""
    return "ZooKeeper" if process == "zookeeper" else process.replace("-", " ")
