"""Take the ZooKeeper server's jars out of a downloaded PySpark, wheel or source archive. Used by the Dockerfile.

Usage: take_jars.py DIRECTORY_WITH_THE_DOWNLOAD TARGET_DIRECTORY
"""

from __future__ import annotations

import fnmatch
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

PATTERNS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
)


def files(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each file in the archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                with wheel.open(name) as content:
                    yield name, content
        return
    with tarfile.open(archive) as source:
        for member in source:
            content = source.extractfile(member)
            if content is not None:
                yield member.name, content


def main(download: str, target: str) -> None:
    """Copy the jars and refuse to go on without a ZooKeeper."""
    taken = []
    for archive in Path(download).iterdir():
        for name, content in files(archive):
            path = PurePosixPath(name)
            if path.parent.name == "jars" and any(fnmatch.fnmatch(path.name, pattern) for pattern in PATTERNS):
                with (Path(target) / path.name).open("wb") as jar:
                    shutil.copyfileobj(content, jar)
                taken.append(path.name)
    if not any(name.startswith("zookeeper-") for name in taken):
        sys.exit(f"there is no ZooKeeper among the jars in {download}")
    sys.stdout.write("".join(f"{name}\n" for name in sorted(taken)))


if __name__ == "__main__":
    main(*sys.argv[1:])
