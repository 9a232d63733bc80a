"""The suites' sources and what they need, from the ordinary package clients: pip, Go, apt; kept in the user's cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fetched import Unavailable, kept

FETCH_SECONDS = 1_800.0


def program(name: str, belongs_to: str) -> str:
    """Return a program's path.

    Raises:
        Unavailable: it is not installed.
    """
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{belongs_to} ({name}) is not installed")
    return found


def run(command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a package client or a compiler; return its stdout.

    Raises:
        Unavailable: it fails, or takes too long.
    """
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=os.environ | dict(environment or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{Path(command[0]).name} took more than {FETCH_SECONDS:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"{Path(command[0]).name} failed: {said[-1][:300] if said else done.returncode}")
    return done.stdout


def python_environment(name: str, version: str, needs: Sequence[str]) -> Path:
    """Return a directory with ``venv``: a released package and its tests' needs.

    Raises:
        Unavailable: pip can't get one of them.
    """

    def fetch(directory: Path) -> None:
        run([sys.executable, "-m", "venv", "venv"], directory)
        python = str(directory / "venv" / "bin" / "python")
        run([python, "-m", "pip", "install", "--quiet", f"{name}=={version}", *needs], directory)

    return kept(f"outside-{name}-{version}", fetch)


def go_suite(module: str, version: str, package: str, tags: str = "") -> Path:
    """Return a directory with a Go package's compiled tests and ``source``.

    Raises:
        Unavailable: Go is missing, or the module proxy can't be reached.
    """

    def fetch(directory: Path) -> None:
        go = program("go", "Go")
        with tempfile.TemporaryDirectory() as empty:
            said = run([go, "mod", "download", "-json", f"{module}@{version}"], Path(empty))
        [where] = re.findall(r'"Dir": "(.*)"', said)
        # Modules in Go's cache are read-only; go.mod must be writable for -mod=mod.
        shutil.copytree(where, directory / "source", copy_function=shutil.copyfile)
        for path in (directory / "source").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        command = [go, "test", "-c", "-o", str(directory / "suite.test"), *(["-tags", tags] if tags else []), package]
        run(command, directory / "source")

    return kept(f"outside-{Path(module).name}-{version}", fetch)


def debian_suite(package: str, version: str, build: Sequence[Sequence[str]]) -> Path:
    """Return a directory with ``source``, a built Debian source package.

    The machine's own package sources are asked for sources too, in an apt configuration of its own.

    Raises:
        Unavailable: there is no apt, or it does not have the sources.
    """

    def fetch(directory: Path) -> None:
        apt = program("apt-get", "apt")
        etc = directory / "apt"
        shutil.copytree("/etc/apt", etc)
        for path in (etc / "sources.list.d").glob("*.sources"):
            path.write_text(re.sub(r"(?m)^Types: deb$", "Types: deb deb-src", path.read_text()))
        (directory / "lists" / "partial").mkdir(parents=True)
        options = ["-o", f"Dir::Etc={etc}", "-o", f"Dir::State::lists={directory / 'lists'}", "-qq"]
        run([apt, *options, "update"], directory)
        run([apt, *options, "--download-only", "source", f"{package}={version}"], directory)
        [archive] = directory.glob(f"{package}_*.orig.tar.*")
        with tarfile.open(archive) as packed:
            packed.extractall(directory / "unpacked", filter="data")
        [unpacked] = (directory / "unpacked").iterdir()
        unpacked.rename(directory / "source")
        for command in build:
            run(command, directory / "source")

    return kept(f"outside-debian-{package}-{version}", fetch)
