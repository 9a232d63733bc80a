"""Tab: names of topics, partitions and groups that the cluster has.

Rules:
    1. The cluster is named by ``-b``, its variable or ``--dir``, as for the verb itself.
    2. A name that can't be found out in time completes nothing: Tab never prints an error, and never waits long.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import click

from tidegauge.cli import command_config
from tidegauge.cluster_directory import found_directory
from tidegauge_client.admin import Admin
from tidegauge_client.bootstrap import resolve_bootstrap

PATIENCE_SECONDS = 2.0


def complete_topic(ctx: click.Context, _: click.Parameter, begin: str) -> list[str]:
    """Return the topics with this prefix; internal ones only after an underscore."""
    return [name for name in _found(ctx, _topics) if name.startswith(begin) and (begin or not name.startswith("__"))]


def complete_partition(ctx: click.Context, _: click.Parameter, begin: str) -> list[str]:
    """Return the partitions ``TOPIC-N`` that begin so."""
    found = _found(ctx, _partitions)
    return [name for name in found if name.startswith(begin) and (begin or not name.startswith("__"))]


def complete_group(ctx: click.Context, _: click.Parameter, begin: str) -> list[str]:
    """Return the groups whose ids begin so."""
    return [name for name in _found(ctx, _groups) if name.startswith(begin)]


async def _topics(admin: Admin) -> Sequence[str]:
    return await admin.list_topics()


async def _partitions(admin: Admin) -> Sequence[str]:
    topics = (await admin.metadata()).topics
    return [f"{name}-{number}" for name in sorted(topics) for number in sorted(topics[name].partitions)]


async def _groups(admin: Admin) -> Sequence[str]:
    listed, _ = await admin.list_groups_there(timeout_ms=round(PATIENCE_SECONDS * 1000), missing_ms=0)
    return sorted(one.group_id for one in listed)


def _found(ctx: click.Context, look: Callable[[Admin], Awaitable[Sequence[str]]]) -> Sequence[str]:
    """Return the names found in the cluster; empty on failure (rule 2)."""

    async def work() -> Sequence[str]:
        given = ctx.params.get("directory")
        directory = given if isinstance(given, Path) else found_directory()
        servers = resolve_bootstrap(_servers_of(ctx), directory, os.environ, command_config())
        async with asyncio.timeout(PATIENCE_SECONDS), Admin(servers) as admin:
            return await look(admin)

    try:
        return asyncio.run(work())
    except Exception:  # noqa: BLE001 - whatever it is, the shell would show it in the middle of the line
        return ()


def _servers_of(ctx: click.Context) -> str | None:
    given = ctx.params.get("bootstrap_server")
    return given if isinstance(given, str) else None
