"""Modules that need Spark or Arrow are skipped, with a sentence, in the light environment (``make light``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

# These decode records, for which the product imports Arrow when it does.
DECODING = {"test_spark_ranges.py", "test_spark_setup.py"}
SPARK = re.compile(r"^(?:import|from) (?:pyspark|pyarrow)\b", re.MULTILINE)


class WithoutSpark(pytest.Module):
    """A test module that can't be imported here."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        pytest.skip("needs Spark, which make .venv brings and make light leaves out", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    needed = module_path.name in DECODING or SPARK.search(module_path.read_text(encoding="utf-8"))
    return WithoutSpark.from_parent(parent, path=module_path) if needed and find_spec("pyspark") is None else None
