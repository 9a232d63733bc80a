"""Each failure of set-up says what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidegauge_spark.setup import MODULES, missing, setup_problem

IMPORT_WITH_LITTLE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
import tidegauge_spark.decode, tidegauge_spark.sink, tidegauge_spark.source, tidegauge_spark.transport
from tidegauge_client import Producer
"""
NOT_FOR_WORKERS = {"kazoo", "yaml", "grpc_health", "grpc_reflection", "click", "numpy", "rich", "starlette", "uvicorn"}


def test_nothing_is_missing() -> None:
    assert setup_problem("4.2.0", lambda _: True, "/bin/py") is None
    assert setup_problem("5.0.0.dev1", lambda _: True, "/bin/py") is None


@pytest.mark.parametrize("version", ["4.1.1", "3.5.6", "4.0.0.dev2"])
def test_an_old_pyspark_is_refused(version: str) -> None:
    problem = setup_problem(version, lambda _: True, "/bin/py")
    assert problem is not None
    assert problem.startswith(f"The tidegauge source needs PySpark 4.2 or newer, and /bin/py has {version}.")
    assert "/bin/py -m pip install 'pyspark>=4.2,<5'" in problem


def test_missing_modules_are_named_by_their_distribution() -> None:
    problem = setup_problem("4.3.0", lambda module: module not in {"pyarrow", "google.protobuf"}, "/bin/py")
    assert problem is not None
    assert "needs pyarrow, protobuf, which /bin/py does not have" in problem
    assert problem.endswith("/bin/py -m pip install pyarrow protobuf")


def test_a_worker_says_what_its_python_lacks() -> None:
    error = missing(ModuleNotFoundError("No module named 'grpc'", name="grpc"))
    assert "has no module 'grpc'. Install it there" in error.message
    assert f"{sys.executable} -m pip install grpcio)" in error.message
    assert "PYSPARK_PYTHON" in error.message


def test_workers_import_nothing_beyond_what_they_were_to_install() -> None:
    """Where the package comes by --py-files, the libraries of MODULES are enough: those are what people install."""
    refused = NOT_FOR_WORKERS - {module.split(".", maxsplit=1)[0] for module in MODULES}
    assert "kazoo" in refused
    command = [sys.executable, "-W", "ignore", "-c", IMPORT_WITH_LITTLE, *refused]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
