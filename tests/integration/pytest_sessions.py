"""Sessions of pytest in processes of their own, as a project outside that uses the plugin has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

INI = """
[pytest]
asyncio_default_fixture_loop_scope = function
filterwarnings =
    error
    ignore:unclosed event loop:ResourceWarning
"""


def begin(directory: Path, tests: str, *options: str) -> subprocess.Popen[str]:
    """Run pytest on one file of tests, in a process group of its own."""
    directory.mkdir(exist_ok=True)
    (directory / "pytest.ini").write_text(INI)
    (directory / "test_it.py").write_text(textwrap.dedent(tests))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(directory / "temp")]
    # Nothing of this session's pytest may reach that one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["COLUMNS"] = "160"  # pytest shortens its summary lines at the width of the terminal
    return subprocess.Popen(
        [*command, "-rA", *options],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )


def end(running: subprocess.Popen[str]) -> tuple[dict[str, str], str]:
    """Return the outcome of each test, and the output."""
    try:
        printed, _ = running.communicate(timeout=350)
    finally:
        running.kill()
    found = re.findall(r"^(PASSED|FAILED|ERROR) test_it\.py::(\w+)", printed, re.MULTILINE)
    return {name: outcome.lower() for outcome, name in found}, printed
