"""The example project of docs/guide/11-your-application.md, from outside: a wheel in a virtual environment of its own,
and nothing of this checkout.

Tidegauge's dependencies come from this session's environment, so that nothing large is downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
NO_INDEX = ("Could not find a version", "No matching distribution", "Failed to establish a new connection")


def run(*command: object, directory: Path, may_fail: bool = False) -> subprocess.CompletedProcess[str]:
    # Nothing of this session's pytest, and no path to this checkout, may reach the project.
    environment = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST") and n != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert may_fail or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def project_python(tmp_path: Path) -> Path:
    """A virtual environment with the wheel, and behind it what the wheel depends on."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    built = run(*pip, "wheel", "--quiet", "--no-deps", "-w", tmp_path / "dist", ROOT, directory=tmp_path, may_fail=True)
    if built.returncode and any(sign in built.stderr for sign in NO_INDEX):
        pytest.skip("the build backend can't be downloaded here, so there is no wheel")
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "dist").glob("tidegauge-*.whl")
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(*pip, "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel, directory=tmp_path)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_example_project_tests_its_application_against_failing_brokers(
    project_python: Path, zookeeper: str, tmp_path: Path
) -> None:
    directory = tmp_path / "example"
    shutil.copytree(ROOT / "docs" / "example-project", directory)
    where = run(project_python, "-c", "import tidegauge_lab; print(tidegauge_lab.__file__)", directory=directory)
    assert Path(where.stdout.strip()).is_relative_to(tmp_path), "the wheel's, not the checkout's"
    done = run(
        *(project_python, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", tmp_path / "temp"),
        *("--tidegauge-zookeeper", zookeeper),
        directory=directory,
    )
    assert "3 passed" in done.stdout
    assert "tidegauge" in run(tmp_path / "venv" / "bin" / "tidegauge", "--version", directory=directory).stdout
