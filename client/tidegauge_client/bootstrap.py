"""Where to begin: ``--bootstrap-server``, else ``TIDEGAUGE_BOOTSTRAP_SERVER``, else ``cluster.json`` in ``--dir``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tidegauge.cli import BOOTSTRAP_VARIABLE
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cluster_file import FILE_NAME, load_cluster_file


def parse_bootstrap(servers: str | Sequence[str]) -> list[str]:
    """Read ``host:port[,host:port]``, or several of them; each address once, in the order given.

    Raises:
        TidegaugeError: INVALID_REQUEST, no address at all or one that is not ``host:port``.
    """
    texts = [servers] if isinstance(servers, str) else list(servers)
    addresses = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    if not addresses:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, "no bootstrap server is given; write HOST:PORT, for example 127.0.0.1:19092"
        )
    for address in addresses:
        host, separator, port = address.rpartition(":")
        is_port = port.isascii() and port.isdigit() and 0 < int(port) < 2**16
        if not separator or not host or not is_port or (":" in host and not host.startswith("[")):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"'{address}' is no bootstrap server; write HOST:PORT, for example 127.0.0.1:19092",
            )
    return list(dict.fromkeys(addresses))


def resolve_bootstrap(bootstrap_server: str | None, directory: Path, environment: Mapping[str, str]) -> list[str]:
    """The addresses to try, in turn.

    Args:
        bootstrap_server: what the caller was told; wins.
        directory: the folder of a cluster that ``tidegauge up`` made; asked last.
        environment: the process's variables.

    Raises:
        TidegaugeError: INVALID_REQUEST, malformed; BROKER_NOT_AVAILABLE, none of the three says where.
    """
    told = bootstrap_server or environment.get(BOOTSTRAP_VARIABLE)
    if told:
        return parse_bootstrap(told)
    if not (directory / FILE_NAME).exists():
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"no cluster is known: there is none in {directory}, and neither --bootstrap-server nor "
            f"{BOOTSTRAP_VARIABLE} says where one is; start one with `tidegauge up -d`",
        )
    return parse_bootstrap(load_cluster_file(directory).bootstrap_servers)
