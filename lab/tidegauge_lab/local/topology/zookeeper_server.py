"""A ZooKeeper of one's own, from the jars that ship in a wheel; and the look at any ZooKeeper from outside.

Facts it rests on: the wheel tidegauge-zookeeper, and PySpark's, hold the ZooKeeper 3.9 server with all it needs, so
Java is the only thing to add (``tidegauge.java`` chooses it). Only those jars that the server uses are named: with all
of PySpark's the start takes twice as long, and Netty serves what a server of one's own does not have, TLS.
``tickTime=500`` allows sessions from 1 s on, which the fast profile needs; data and log lie in the cluster's directory.
The health question is ``srvr``, the only four-letter word that a default ZooKeeper serves.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shlex
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.java import OLDEST_VERSION, REQUIREMENT, java_program
from tidegauge_lab.local.topology.process_signs import ZOOKEEPER_CLASS
from tidegauge_lab.local.zookeeper_address import split_address

JVM_FLAGS = (
    "-Xmx64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",  # no file in the system's temporary directory
    "-Djava.net.preferIPv4Stack=true",
    "-Dzookeeper.preAllocSize=1024",  # KiB; the default reserves 64 MiB at once
    "-Dorg.apache.logging.log4j.level=INFO",
)
# The image of docker/ takes the same jars; it can't import this, so a test holds that both lists say the same.
JAR_PATTERNS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
)
_CONNECTION_TIMEOUT_MS = 10_000
WHEEL = "tidegauge_zookeeper"
"""The package of the wheel that holds the jars alone (tools/zookeeper_wheel.py)."""
_PACKAGES = (WHEEL, "pyspark")
_OTHERWISE = (
    "start a cluster that needs neither Java nor ZooKeeper (`tidegauge up --kraft`; `pytest --tidegauge-mode=kraft`), "
    "or give --zookeeper HOST:PORT of a ZooKeeper that runs"
)


def installed() -> tuple[str, Path]:
    """Return the program that runs ZooKeeper, and the directory with its jars.

    The jars come from TIDEGAUGE_ZOOKEEPER_JARS, else from the wheel tidegauge-zookeeper, else from PySpark.

    Raises:
        TidegaugeError: INVALID_REQUEST, Java or the jars are missing; the sentence names all that is, at once.
    """
    directory = _jars_in_use()
    try:
        java = java_program()
    except TidegaugeError as error:
        if directory is not None:
            raise TidegaugeError(error.code, f"{error.message}; or {_OTHERWISE}") from None
        raise _lacking(f"its jars and a Java {OLDEST_VERSION} or newer are", [REQUIREMENT]) from None
    if directory is None:
        raise _lacking("its jars are", [])
    return java, directory


def _lacking(what: str, besides: list[str]) -> TidegaugeError:
    """Return the refusal for missing jars; pip installs ``besides`` together with them."""
    command = shlex.join([sys.executable, "-m", "pip", "install", f"{WHEEL}-VERSION-py3-none-any.whl", *besides])
    return TidegaugeError(
        ErrorCode.INVALID_REQUEST,
        f"there is no ZooKeeper to start: {what} missing. Install them ({command}; `make wheel` in a checkout builds "
        f"that wheel, and PySpark has the jars, too), or {_OTHERWISE}",
    )


def _jars_in_use() -> Path | None:
    """Return the directory with the jars, found without a slow import of PySpark."""
    if named := os.environ.get("TIDEGAUGE_ZOOKEEPER_JARS"):
        if _has_jars(Path(named)):
            return Path(named)
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"there is no ZooKeeper to start: TIDEGAUGE_ZOOKEEPER_JARS names {named}, which has no zookeeper-*.jar. "
            f"Let it name a directory that has, or unset it for the jars that are installed; or {_OTHERWISE}",
        )
    for package in _PACKAGES:
        found = importlib.util.find_spec(package)
        for location in (found.submodule_search_locations or ()) if found is not None else ():
            if _has_jars(directory := Path(location) / "jars"):
                return directory
    return None


def _has_jars(directory: Path) -> bool:
    return any(directory.glob("zookeeper-*.jar"))


def server_command(config_file: Path) -> list[str]:
    """How to start the server.

    Raises:
        TidegaugeError: INVALID_REQUEST, Java or the jars are missing.
    """
    java, directory = installed()
    jars = sorted(str(jar) for pattern in JAR_PATTERNS for jar in directory.glob(pattern))
    return [java, *JVM_FLAGS, "-cp", os.pathsep.join(jars), ZOOKEEPER_CLASS, str(config_file)]


def server_config(data_directory: Path, port: int) -> str:
    """Return the text of ``zoo.cfg``."""
    lines = {
        "tickTime": "500",
        "minSessionTimeout": "1000",
        "maxSessionTimeout": "60000",
        "dataDir": str(data_directory),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "maxClientCnxns": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def responds(address: str, limit_seconds: float = 1.0) -> bool:
    """Whether one of the servers serves requests (not merely accepts connections)."""
    return any(_serves(host, port, limit_seconds) for host, port in split_address(address))


def is_reachable(address: str, limit_seconds: float = 1.0) -> bool:
    """Whether one of the servers accepts connections; a foreign one may not serve ``srvr``."""
    return any(_connects(server, limit_seconds) for server in split_address(address))


def _connects(server: tuple[str, int], limit_seconds: float) -> bool:
    try:
        socket.create_connection(server, limit_seconds).close()
    except OSError:
        return False
    return True


def _serves(host: str, port: int, limit_seconds: float) -> bool:
    try:
        with socket.create_connection((host, port), limit_seconds) as connection:
            connection.settimeout(limit_seconds)
            connection.sendall(b"srvr")
            response = bytearray()
            while block := connection.recv(4096):
                response += block
    except OSError:
        return False
    return b"Mode: " in response


def granted_session_timeout_ms(address: str, asked_ms: int) -> int:
    """Return the session timeout that a ZooKeeper grants, found with a short session.

    Raises:
        TidegaugeError: it can't be reached.
    """
    # Only a foreign ZooKeeper's clusters pay for it: every command that starts or stops something loads this module.
    from tidegauge_controller.zookeeper.client import ZooKeeper  # noqa: PLC0415 - see above

    async def ask() -> int:
        client = await ZooKeeper.connect(
            address, session_timeout_ms=asked_ms, connection_timeout_ms=_CONNECTION_TIMEOUT_MS
        )
        try:
            return client.negotiated_session_timeout_ms
        finally:
            await client.close()

    # On a thread of its own: the caller's may have a running event loop.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, ask()).result()
