"""`tidegauge watch` without its extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegauge_lab.cli.watch import watch


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_a_missing_extra_is_reported_with_its_cure(missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, missing, None)
    done = CliRunner().invoke(watch, ["--dir", str(tmp_path)])
    assert done.exit_code == 1
    assert f"needs {missing}, which is not installed: {sys.executable} -m pip install 'starlette" in done.output
