"""The table in docs/clients.md comes from the last ``make clients``, whose tests and versions are still the same.

Whether clients still work is seen by those tests alone; here is held what can be seen without a cluster or network.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.clients.applications import DEBEZIUM, FLINK_CONNECTOR, PYTHON_PACKAGES, SPRING_KAFKA
from tests.clients.programs import KAFKA, KAFKA_4, KAFKA_BEFORE_BATCHES, NODE_CLIENTS, node_version
from tests.clients.table import MARK, PAGE, known_results, rendered, with_table

ROOT = Path(__file__).parents[3]
CONSTRAINTS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line
)
GO_MODULES = (ROOT / "tests/clients/go/go.mod").read_text(encoding="utf-8")
NODE = {label: node_version(name) for name, (_, _, label) in NODE_CLIENTS.items()}
CARGO = {"Rust: rskafka": ("rust", "rskafka"), "Rust: rust-rdkafka": ("rdkafka", "rdkafka")}
FRAMEWORKS = {
    "Java: Spring for Apache Kafka": SPRING_KAFKA,
    "Java: Flink's Kafka connector": FLINK_CONNECTOR,
    "Java: Debezium's stores": DEBEZIUM,
    "Python: Quix Streams": PYTHON_PACKAGES["quixstreams"],
    "Python: Faust (faust-streaming)": PYTHON_PACKAGES["faust-streaming"],
    "Python: FastStream": PYTHON_PACKAGES["faststream[kafka]"],
}


def pinned(client: str) -> set[str]:
    """Return the versions of a client that the repository pins; none for a program of the machine."""
    if client in NODE | FRAMEWORKS:
        return {(NODE | FRAMEWORKS)[client]}
    if client in CARGO:
        directory, crate = CARGO[client]
        locked = (ROOT / "tests/clients" / directory / "Cargo.lock").read_text(encoding="utf-8")
        return set(re.findall(rf'name = "{crate}"\nversion = "(.+)"', locked))
    package = {"Python: ": client.removeprefix("Python: "), "Spark: ": "pyspark"}
    for start, name in package.items():
        if client.startswith(start):
            return {CONSTRAINTS[name]}
    if client.startswith("Go: "):
        return set(re.findall(rf"/{client.removeprefix('Go: ')} v(\S+)$", GO_MODULES, re.MULTILINE))
    if client == "Java: Kafka's clients before record batches":
        return set(KAFKA_BEFORE_BATCHES)
    return {"C: kcat": set()}.get(client, {KAFKA, KAFKA_4})


def marked_tests() -> set[str]:
    """Return file and function of each test that says which client it tries."""
    found = set()
    for path in (ROOT / "tests" / "integration").glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                marks = [ast.unparse(one) for one in node.decorator_list]
                if any(f"mark.{MARK}(" in one for one in marks):
                    found.add(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def test_the_page_has_the_table_of_the_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page, known_results()) == page


def test_every_marked_test_has_a_result_and_every_result_its_test() -> None:
    assert {one["test"].partition("[")[0] for one in known_results()} == marked_tests()


def test_every_client_that_was_tried_is_the_one_that_is_pinned() -> None:
    """A new version in a pin means: run ``make clients``."""
    tried = {(one["client"], one["version"].partition(" ")[0]) for one in known_results() if one["client"]}
    assert len(tried) >= 9
    assert [(client, number) for client, number in tried if (pins := pinned(client)) and number not in pins] == []


def test_a_failed_test_is_named_and_a_skipped_one_left_out() -> None:
    one = {"client": "c", "version": "1", "what": "reads", "test": "t.py::a", "outcome": "passed"}
    table = rendered([one, one | {"what": "writes", "outcome": "failed"}, one | {"what": "x", "outcome": "skipped"}])
    assert table.splitlines()[2:] == ["| c | 1 | reads **Does not work:** writes | `t.py` |"]


def test_what_was_tried_in_both_modes_says_so_and_what_was_tried_in_one_names_kraft_mode_alone() -> None:
    one = {"client": "c", "version": "1", "what": "reads", "test": "t.py::a", "outcome": "passed"}
    kraft = one | {"mode": "kraft"}
    for results, said in (([one], "reads"), ([kraft], "reads (KRaft mode)"), ([one, kraft], "reads (both modes)")):
        assert rendered(results).splitlines()[2:] == [f"| c | 1 | {said} | `t.py` |"]


@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_a_client_has_a_row_for_each_version(outcome: str) -> None:
    one = {"client": "c", "version": "1", "what": "reads", "test": "t.py::a", "outcome": outcome}
    assert len(rendered([one, one | {"version": "2"}, one | {"test": "u.py::b"}]).splitlines()) == 4
