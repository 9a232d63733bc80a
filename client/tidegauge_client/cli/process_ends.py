"""How the processes of brokers that are down have ended, for verbs that meet brokers which do not respond.

Only the cluster in ``--dir`` can tell: its files are at hand. A process counts as dead if its port refuses connections:
a frozen one still takes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path

from tidegauge.errors import TidegaugeError
from tidegauge_client.cluster_file import FILE_NAME, BrokerEntry, load_cluster_file
from tidegauge_client.process_end import read_end

_LIMIT_SECONDS = 1.0


def brokers_in(directory: Path, bootstrap: Sequence[str]) -> Sequence[BrokerEntry]:
    """Return the brokers of a directory's cluster, if it has these addresses."""
    if not (directory / FILE_NAME).exists():
        return ()
    try:
        file = load_cluster_file(directory)
    except TidegaugeError:
        return ()
    return file.brokers if set(bootstrap) <= set(file.bootstrap_servers) else ()


async def ends_of(directory: Path, bootstrap: Sequence[str], asked: Collection[int] | None = None) -> dict[int, str]:
    """Return how dead brokers' processes ended, a clause for each.

    Args:
        directory: of the cluster, if it is a local one.
        bootstrap: the addresses that the verb was given or found.
        asked: the brokers; None: all of the cluster.
    """
    brokers = [one for one in brokers_in(directory, bootstrap) if asked is None or one.id in asked]
    dead = await asyncio.gather(*(_refuses(one.host, one.port) for one in brokers))
    found: dict[int, str] = {}
    for one, is_dead in zip(brokers, dead, strict=True):
        end = read_end(directory, f"broker-{one.id}") if is_dead else None
        if end is not None:
            found[one.id] = f"Broker {one.id} {end.sentence}"
    return found


async def _refuses(host: str, port: int) -> bool:
    """Return whether nothing listens at an address."""
    try:
        async with asyncio.timeout(_LIMIT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except OSError:  # TimeoutError is one
        return False
    writer.close()
    return False
