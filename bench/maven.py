"""Jars from Maven Central, resolved once into a cache directory with ``mvn dependency:copy-dependencies``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fetched import Unavailable, kept

from tidegauge.errors import TidegaugeError
from tidegauge.java import java_home

ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""


class Artifact(NamedTuple):
    """One artifact; the version may be a range, ``[4.0,4.2.0]``: then it is the newest that is there.

    Attributes:
        group: as Maven calls it.
        name: as Maven calls it.
        version: one, or a range.
        alone: without what it depends on.
        classifier: of its jar: ``test`` for tests; empty for the jar itself.
    """

    group: str
    name: str
    version: str
    alone: bool = False
    classifier: str = ""


def resolve(name: str, artifacts: Sequence[Artifact]) -> Path:
    """Return the cache's directory ``name`` with these artifacts and their dependencies.

    Raises:
        Unavailable: no Maven or no Java, or its repository does not have them.
    """
    return kept(name, lambda directory: _copy_dependencies(name, artifacts, directory))


def _copy_dependencies(name: str, artifacts: Sequence[Artifact], directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Maven (mvn) is not installed")
    with tempfile.TemporaryDirectory() as project:
        (Path(project) / "pom.xml").write_text(_POM.format("\n".join(map(_dependency, artifacts))))
        command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={directory}"]
        environment = os.environ | {"JAVA_HOME": _java_home()}
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"Maven could not resolve {name}: {_reason(done.stdout + done.stderr)}")


def _java_home() -> str:
    try:
        return str(java_home())
    except TidegaugeError as error:
        raise Unavailable(error.message) from None


def _dependency(one: Artifact) -> str:
    coordinates = f"<groupId>{one.group}</groupId><artifactId>{one.name}</artifactId><version>{one.version}</version>"
    classifier = f"<classifier>{one.classifier}</classifier>" if one.classifier else ""
    return f"<dependency>{coordinates}{classifier}{ALONE if one.alone else ''}</dependency>"


def _reason(output: str) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m|\[ERROR\]|Failed to execute goal on project bench: ", "", output).strip()
    return text.splitlines()[0].strip()[:300] if text else "it did not say why"
