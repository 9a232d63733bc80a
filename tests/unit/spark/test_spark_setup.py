"""Each failure of set-up says what to do (issue 6)."""

from __future__ import annotations

import pytest

from tidegauge_spark.setup import missing, setup_problem


def test_nothing_is_missing() -> None:
    assert setup_problem("4.2.0", lambda _: True, "/bin/py") is None
    assert setup_problem("5.0.0.dev1", lambda _: True, "/bin/py") is None


@pytest.mark.parametrize("version", ["4.1.1", "3.5.6", "4.0.0.dev2"])
def test_an_old_pyspark_is_refused(version: str) -> None:
    problem = setup_problem(version, lambda _: True, "/bin/py")
    assert problem is not None
    assert problem.startswith(f"The tidegauge source needs PySpark 4.2 or newer, and /bin/py has {version}.")
    assert "pip install 'tidegauge[spark]'" in problem


def test_missing_modules_are_named_by_their_distribution() -> None:
    problem = setup_problem("4.3.0", lambda module: module not in {"pyarrow", "google.protobuf"}, "/bin/py")
    assert problem is not None
    assert "needs pyarrow, protobuf, which /bin/py does not have" in problem


def test_a_worker_says_what_its_python_lacks() -> None:
    error = missing(ModuleNotFoundError("No module named 'grpc'", name="grpc"))
    assert "has no module 'grpc'. Install grpcio for it" in error.message
    assert "PYSPARK_PYTHON" in error.message
