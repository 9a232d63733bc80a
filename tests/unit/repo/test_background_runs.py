"""The suite passes whoever starts it: as a job in the background of a shell, too, which ignores Ctrl-C for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
# A child process's disposition of Ctrl-C: POSIX hands on an ignored signal, not a handler (execve(2)).
CHILD = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
TEST = (
    f"import subprocess, sys\n\ndef test_child():\n    assert subprocess.call([sys.executable, '-c', {CHILD!r}]) == 0\n"
)


_IGNORING = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
"""A shell that ignores SIGINT and becomes the command: Python's own way would run code in a fork of gRPC's threads."""


def test_a_suite_started_with_ctrl_c_ignored_has_commands_that_heed_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_bytes((ROOT / "tests/conftest.py").read_bytes())
    (tmp_path / "test_child.py").write_text(TEST, encoding="utf-8")
    ended = subprocess.run(
        [*_IGNORING, sys.executable, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, tmp_path],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout
