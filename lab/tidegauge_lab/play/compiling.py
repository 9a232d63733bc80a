"""Compiles what the page ``play`` loads, by the browser's own Python under Node.js.

Contract: ``compile_library`` makes ``library.zip`` of Pyodide's standard library, without what no worker of a page can
use; ``compile_modules`` makes ``modules.zip`` of the brokers' code. A module that has changed since then is sent as its
source (``play.code_archive``), so that a checkout never runs what it does not have.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Collection
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.play.code_archive import archive

LIBRARY = "library.zip"
MODULES = "modules.zip"
LEFT_OUT = frozenset(
    {
        *("_pydatetime", "_pyio", "_pyrepl", "antigravity", "bdb", "cProfile", "compileall", "configparser"),
        *("ctypes", "curses", "dbm", "doctest", "email", "ensurepip", "ftplib", "html", "http", "idlelib", "imaplib"),
        *("mailbox", "modulefinder", "multiprocessing", "optparse", "pdb", "pickletools", "plistlib", "poplib"),
        *("profile", "profiling", "pstats", "pydoc", "pydoc_data", "site-packages", "smtplib", "socketserver"),
        *("sqlite3", "symtable", "tarfile", "this", "tkinter", "trace", "tracemalloc", "turtle", "turtledemo"),
        *("unittest", "venv", "wave", "webbrowser", "wsgiref", "xml", "xmlrpc", "zipapp"),
        *(f"encodings/{one}" for one in ("_win*", "big5*", "cp[0-35-9]*", "cp42*", "euc_*", "gb*", "hp_*", "iso*")),
        *(f"encodings/{one}" for one in ("johab", "koi8*", "kz*", "mac_*", "mbcs", "oem", "palmos", "ptcp*", "rot_*")),
        *("encodings/hz", "encodings/shift_*", "encodings/tis_*"),
    }
)  # fmt: skip
"""Modules about other processes, networks, terminals, tests, files of other programs, and encodings before Unicode.

ASCII, Latin-1, UTF-8 to UTF-32 and cp437, which names in ZIP files have, stay.
"""
_SECONDS = 300
_PROGRAM = """
process.on("uncaughtException", (problem) => { console.error(String(problem)); process.exit(1); });
const [runtime, library, scratch, leftOut] = process.argv.slice(1);
const { loadPyodide } = await import(`${runtime}/pyodide.mjs`);
const python = await loadPyodide({ indexURL: `${runtime}/`, stdLibURL: library });
python.mountNodeFS("/scratch", scratch);
python.globals.set("left_out", leftOut);
python.runPython(`
import sys
sys.path.insert(0, "/scratch")
from pathlib import Path
from bytecode import compiled_archive
sources = Path("/scratch/sources.zip").read_bytes()
Path("/scratch/compiled.zip").write_bytes(compiled_archive(sources, set(left_out.split())))
`);
"""


def compile_library(node: Path, runtime: Path, sources: bytes) -> None:
    """Write ``library.zip`` beside the files of the runtime.

    Args:
        node: Node's program.
        runtime: the directory with Pyodide's files.
        sources: Pyodide's ``python_stdlib.zip``.

    Raises:
        TidegaugeError: Node.js fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch) / "python_stdlib.zip"
        library.write_bytes(sources)
        _compile(node, runtime, library, sources, LEFT_OUT, runtime / LIBRARY)


def compile_modules(node: Path, runtime: Path) -> None:
    """Write ``modules.zip`` beside the files of the runtime, which has its ``library.zip``.

    Raises:
        TidegaugeError: Node.js fails.
    """
    _compile(node, runtime, runtime / LIBRARY, archive(), (), runtime / MODULES)


def _compile(node: Path, runtime: Path, library: Path, sources: bytes, left_out: Collection[str], target: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        (scratch / "bytecode.py").write_bytes(Path(__file__).with_name("bytecode.py").read_bytes())
        (scratch / "sources.zip").write_bytes(sources)
        given = [os.fspath(one.resolve()) for one in (runtime, library, scratch)]
        command = [os.fspath(node), "--input-type=module", "--eval", _PROGRAM, *given, " ".join(sorted(left_out))]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_SECONDS, text=True, check=False)
        except (subprocess.SubprocessError, OSError) as problem:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"Node.js can't compile modules: {problem}") from None
        if done.returncode != 0:
            words = [line for line in done.stderr.splitlines() if "Error" in line]
            why = words[-1] if words else f"exit status {done.returncode}"
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"Node.js can't compile modules: {why}")
        temporary = target.with_suffix(".tmp")
        temporary.write_bytes((scratch / "compiled.zip").read_bytes())
        temporary.replace(target)
