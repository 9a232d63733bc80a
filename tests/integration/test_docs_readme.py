"""The blocks of README and of the first steps, run by a reader in an empty directory: what they show happens."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.documents import Reader, blocks

pytestmark = pytest.mark.integration

INI = """
[pytest]
asyncio_default_fixture_loop_scope = function
"""
ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


@pytest.mark.parametrize(
    ("page", "at_least"),
    [("README.md", 2), pytest.param("docs/first-steps.md", 6, marks=pytest.mark.long)],
)
def test_the_page_shows_what_happens(
    page: str, at_least: int, tmp_path: Path, next_base_port: Callable[[], int]
) -> None:
    reader = Reader(tmp_path, next_base_port())
    try:
        assert reader.follow(ROOT / page) >= at_least
    finally:
        reader.close()


def test_the_test_in_readme_passes(zookeeper: str, tmp_path: Path) -> None:
    [shown] = [one.text for one in blocks(README.read_text(encoding="utf-8")) if "def test_" in one.text]
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_it.py").write_text(shown)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tidegauge-zookeeper", zookeeper]
    # Nothing of this session's pytest may reach that one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command += ["--basetemp", str(tmp_path / "temp")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
