"""The settings that a verb for nodes of a KRaft cluster is given: a properties file, or variables as in containers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tidegauge.environment import settings_of_environment
from tidegauge.settings import read_properties


def settings_options(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds ``--config`` and ``--environment``, for ``given_settings``.

    Args:
        what: whose properties file, such as "The node's".
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        file = click.option(
            "-c",
            "--config",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help=f"{what} properties file.",
        )
        variables = click.option(
            "--environment",
            is_flag=True,
            help="Settings from variables like KAFKA_NODE_ID, over the file's, as in containers.",
        )
        return file(variables(command))

    return add


def given_settings(config: Path | None, *, environment: bool) -> dict[str, str]:
    """Return the settings as texts, by name.

    Raises:
        click.UsageError: neither was given.
        OSError: the file can't be read.
    """
    if config is None and not environment:
        raise click.UsageError("Missing option '-c' / '--config', or '--environment'.")
    texts = read_properties(config.read_text(encoding="utf-8")) if config is not None else {}
    return texts | (settings_of_environment(os.environ) if environment else {})
