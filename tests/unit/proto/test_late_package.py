"""A package that runs late: its modules cost no more than themselves, and a program that uses it finds it whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidegauge.late_package import run_late

_PACKAGE = """
print("the package runs")
from late.heavy import WEIGHT
from late import heavy as same
NAME = "whole"
"""


def _said(directory: Path, program: str) -> list[str]:
    package = directory / "late"
    package.mkdir()
    (package / "__init__.py").write_text(_PACKAGE, encoding="utf-8")
    (package / "heavy.py").write_text('print("heavy runs")\nWEIGHT = 3\n', encoding="utf-8")
    (package / "light.py").write_text("FEATHER = 1\n", encoding="utf-8")
    start = f"import sys\nsys.path.insert(0, {str(directory)!r})\nfrom tidegauge.late_package import run_late\n"
    command = [sys.executable, "-c", start + program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.splitlines()


def test_a_module_of_the_package_does_not_run_the_package(tmp_path: Path) -> None:
    said = _said(tmp_path, "run_late('late')\nfrom late.light import FEATHER\nimport late\nprint(FEATHER)")
    assert said == ["1"]


@pytest.mark.parametrize(
    "use",
    ["import late; print(late.NAME)", "from late import NAME; print(NAME)", "from late import *; print(NAME)"],
)
def test_the_first_name_from_it_runs_it_once(tmp_path: Path, use: str) -> None:
    said = _said(
        tmp_path, f"run_late('late')\nfrom late.light import FEATHER\n{use}\nprint(sys.modules['late'].light.FEATHER)"
    )
    assert said == ["the package runs", "heavy runs", "whole", "1"]


def test_a_package_that_has_run_stays_as_it_is(tmp_path: Path) -> None:
    said = _said(tmp_path, "import late\nrun_late('late')\nimport late.light\nprint(late.NAME)")
    assert said == ["the package runs", "heavy runs", "whole"]


def test_a_name_that_it_does_not_have_is_an_attribute_error_and_two_threads_wait_for_one_run(tmp_path: Path) -> None:
    program = """
run_late('late')
import late, threading
found = []
threads = [threading.Thread(target=lambda: found.append(late.NAME)) for _ in range(8)]
[one.start() for one in threads]
[one.join() for one in threads]
print(found == ["whole"] * 8, hasattr(late, "nothing"), type(late).__name__)
"""
    assert _said(tmp_path, program) == ["the package runs", "heavy runs", "True False module"]


def test_a_package_that_is_not_installed_is_a_module_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'tidegauge_of_nowhere'"):
        run_late("tidegauge_of_nowhere")


def test_the_codec_of_records_does_not_load_a_client() -> None:
    program = (
        "import sys, tidegauge.record_codec\n"
        "print('aiokafka.client' in sys.modules)\n"
        "from aiokafka import AIOKafkaProducer\n"
        "from aiokafka.record.default_records import DefaultRecordBatch\n"
        "print(DefaultRecordBatch is tidegauge.record_codec.RecordBatch)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "True"]
