"""Builds the wheel tidegauge-zookeeper: the jars of a ZooKeeper server, out of the PySpark that is installed here.

Usage: zookeeper_wheel.py DIRECTORY. The wheel in it holds one package, ``tidegauge_zookeeper``, with the jars that
``tidegauge up`` names (``JAR_PATTERNS``), and the licences and notices that the jars carry.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from tidegauge import __version__
from tidegauge_lab.local.topology.zookeeper_server import JAR_PATTERNS, WHEEL

ROOT = Path(__file__).parents[1]
PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "tidegauge-zookeeper"
version = "{version}"
description = "The jars of an Apache ZooKeeper {zookeeper} server, for tidegauge up in ZooKeeper mode."
requires-python = ">=3.11"
license = "Apache-2.0 AND MIT"
license-files = ["NOTICE", "licenses/*"]

[tool.hatch.build.targets.wheel]
only-include = ["{package}"]
"""
NOTICE = """\
tidegauge-zookeeper holds works of others, unchanged, as PySpark {pyspark} brings them:

{jars}
Apache ZooKeeper, Apache Log4j, Dropwizard Metrics and snappy-java are under the Apache License, Version 2.0; SLF4J
is under the MIT License. The texts that the jars themselves carry are beside this file.

Apache ZooKeeper
Copyright The Apache Software Foundation
This product includes software developed at The Apache Software Foundation (https://www.apache.org/).
"""
ABOUT = '"""The jars of an Apache ZooKeeper server, in the directory ``jars``; `tidegauge up` finds them."""\n'
_TEXTS = ("LICENSE", "NOTICE")


def jars_of_pyspark() -> list[Path]:
    """Return the jars of a ZooKeeper server, or exit without PySpark."""
    found = importlib.util.find_spec("pyspark")
    places = [] if found is None else [Path(one) / "jars" for one in found.submodule_search_locations or ()]
    jars = sorted(jar for place in places for pattern in JAR_PATTERNS for jar in place.glob(pattern))
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        sys.exit("ZooKeeper's jars come out of PySpark, which is not installed here: make .venv brings it")
    return jars


def lay_out(directory: Path, jars: list[Path]) -> None:
    """Write the project that the wheel is built from."""
    package, licenses = directory / WHEEL, directory / "licenses"
    (package / "jars").mkdir(parents=True)
    licenses.mkdir()
    (package / "__init__.py").write_text(ABOUT, encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", licenses / "LICENSE-Apache-2.0")
    for jar in jars:
        shutil.copy(jar, package / "jars" / jar.name)
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                path = PurePosixPath(name)
                if path.parent.name == "META-INF" and path.stem in _TEXTS:
                    (licenses / f"{jar.stem}-{path.stem}").write_bytes(archive.read(name))
    zookeeper = next(jar.stem.removeprefix("zookeeper-") for jar in jars if jar.stem[10:11].isdigit())
    listed = "".join(f"    {jar.name}\n" for jar in jars)
    (directory / "NOTICE").write_text(NOTICE.format(pyspark=version("pyspark"), jars=listed), encoding="utf-8")
    text = PYPROJECT.format(version=__version__, zookeeper=zookeeper, package=WHEEL)
    (directory / "pyproject.toml").write_text(text, encoding="utf-8")


def main(target: str) -> None:
    """Build the wheel in this directory."""
    directory = ROOT / "build" / "zookeeper"
    shutil.rmtree(directory, ignore_errors=True)
    lay_out(directory, jars_of_pyspark())
    quiet = ("--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", target)
    subprocess.run([sys.executable, "-m", "pip", "wheel", *quiet, str(directory)], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
