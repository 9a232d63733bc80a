"""Modules that import one another: none at run time, and few in annotations.

A circle at run time works only as long as its imports come in the right order, and none of its modules can be read,
tested or moved without the others. An import under ``TYPE_CHECKING`` orders nothing; two classes that name one another
in annotations still belong to one thought, so each such circle is listed here with what holds it together.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import grimp
import pytest

PACKAGES = (
    "tidegauge",
    "tidegauge_broker",
    "tidegauge_controller",
    "tidegauge_client",
    "tidegauge_spark",
    "tidegauge_lab",
    "tidegauge_proof",
)
CORE, SIMULATOR = "tidegauge_broker.replica.", "tidegauge_proof.simulator."
IN_ANNOTATIONS = {
    frozenset(CORE + name for name in ("partition", "leader", "follower", "reading", "standing_rounds")):
        "a replica holds its role, and a role acts on its replica",
    frozenset(
        CORE + name
        for name in ("messages", "remote_replica", "standing_fetch", "epoch_cache", "rules.rule", "rules.tried")
    ):
        "a session's account covers remote replicas, which know what covers them; a fetch carries it, and settings "
        "carry rules that are tried",
    frozenset({"tidegauge_broker.log.log_directory", "tidegauge_broker.log.partition_log"}):
        "a log directory holds its logs, and each log writes to the disk of its directory",
    frozenset({"tidegauge_broker.server.wire.kafka.connection", "tidegauge_broker.server.wire.kafka.owner"}):
        "a connection is given its listener, which counts connections",
    frozenset({SIMULATOR + "memory_broker", SIMULATOR + "stored_replica"}):
        "a broker holds what it has stored, which knows whether its broker runs",
    frozenset({SIMULATOR + "checker", SIMULATOR + "sim_partition"}):
        "a partition calls its checker, which looks at it",
    frozenset({SIMULATOR + "exactly_once.cluster", SIMULATOR + "exactly_once.stable_offsets"}):
        "a cluster holds the proofs in progress, which send by its network",
    frozenset({"tidegauge_proof.hand.coordination", "tidegauge_proof.hand.transaction_peers"}):
        "a cluster's coordinators hold the brokers' requests about transactions, which are sent by them",
    frozenset({"tidegauge_proof.hand.client_steps", "tidegauge_proof.hand.story"}):
        "a story has steps of clients, which act on the story",
}  # fmt: skip


def imports(*packages: str, in_annotations: bool) -> dict[str, set[str]]:
    """Return the modules that each module of the packages imports, in functions, too.

    Args:
        packages: whose modules.
        in_annotations: whether imports under ``TYPE_CHECKING`` count.
    """
    first, *others = packages
    found = grimp.build_graph(first, *others, exclude_type_checking_imports=not in_annotations, cache_dir=None)
    return {name: found.find_modules_directly_imported_by(name) for name in found.modules}


def circles(edges: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the sets of modules that reach each other."""
    reached: dict[str, set[str]] = {}
    for name in edges:
        found, waiting = set[str](), [name]
        while waiting:
            fresh = edges[waiting.pop()] - found
            found |= fresh
            waiting += fresh
        reached[name] = found
    return {
        frozenset(other for other in reached[name] if name in reached[other]) for name in edges if name in reached[name]
    }


def test_a_circle_is_found_in_whatever_form_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_package"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "a": "from some_package import b",
        "b": "def f():\n    import some_package.c",
        "c": "from some_package.a import name",
        "d": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from some_package.e import E",
        "e": "import some_package.d",
        "f": "import some_package.a",
    }.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    of_three, of_two = (frozenset(f"some_package.{name}" for name in names) for names in ("abc", "de"))
    try:
        assert circles(imports("some_package", in_annotations=False)) == {of_three}
        assert circles(imports("some_package", in_annotations=True)) == {of_three, of_two}
    finally:
        sys.modules.pop("some_package", None)


def test_no_modules_import_one_another_at_run_time() -> None:
    """Nor in functions: an import that was put into a function to break a circle hides it."""
    assert circles(imports(*PACKAGES, in_annotations=False)) == set()


def test_modules_name_one_another_in_annotations_only_where_one_thought_has_two_files() -> None:
    assert circles(imports(*PACKAGES, in_annotations=True)) == set(IN_ANNOTATIONS)
