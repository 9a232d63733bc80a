"""Snapshots and restores that are killed at any of their steps: finished or undone later (snapshots.py, rules 2 and 4).

A kill is an exception that nothing catches, before a change of the file system or, if that is many changes, amid
them.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.lab.test_snapshots import cluster_in

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import read_events
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_lab.local import layout, snapshots

DATA = ("broker-0/data", "broker-0/data-2", "broker-1/data", "zookeeper/data")
STEPS = 60
"""More than any of the operations has."""


class Killed(BaseException):
    """The process ends here."""


class Steps:
    """Counts the changes of the file system, and kills before one of them, or amid it.

    Args:
        patched: where the functions are replaced.
        last: how many changes are made; one that is amid counts as the next.
        amid: whether the change after them is made in part.
    """

    def __init__(self, patched: pytest.MonkeyPatch, last: int, *, amid: bool) -> None:
        self._left, self._amid, self._nested = last, amid, False
        for owner, name in (
            *((shutil, name) for name in ("copytree", "rmtree")),
            *((Path, name) for name in ("rename", "replace", "unlink", "write_text", "mkdir")),
        ):
            patched.setattr(owner, name, self._counted(getattr(owner, name), name))

    def _counted(self, act: Callable[..., Any], name: str) -> Callable[..., Any]:
        def step(path: Path, *arguments: Any, **options: Any) -> Any:
            if self._nested:
                return act(path, *arguments, **options)
            self._nested = True
            try:
                if self._left == 0:
                    if self._amid:
                        self._in_part(act, name, path, *arguments, **options)
                    raise Killed
                self._left -= 1
                return act(path, *arguments, **options)
            finally:
                self._nested = False

        return step

    @staticmethod
    def _in_part(act: Callable[..., Any], name: str, path: Path, *arguments: Any, **options: Any) -> None:
        if name == "copytree":
            act(path, *arguments, **options)
        if name in {"copytree", "rmtree"}:
            tree = arguments[0] if name == "copytree" else path
            for one in [one for one in sorted(tree.rglob("*"), reverse=True) if one.is_file()][:1]:
                one.unlink()
        elif name == "write_text":
            path.touch()


def killed_at(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], last: int, *, amid: bool) -> bool:
    """Do something until it is killed; whether it was."""
    with monkeypatch.context() as patched:
        Steps(patched, last, amid=amid)
        try:
            act()
        except Killed:
            return True
    return False


def texts(directory: Path) -> set[str]:
    """Return the word of ``cluster_in`` in each directory with data."""
    return {(directory / path / "t-0" / "00.log").read_text().split()[0] for path in DATA}


def files(directory: Path) -> list[Path]:
    """Return all files but the snapshots'."""
    found = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return sorted(path for path in found if path.parts[0] != layout.SNAPSHOTS)


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Path, ClusterFile]]:
    """Clusters with the snapshot ``one`` of the first data, and the second data in place."""

    def make() -> Iterator[tuple[Path, ClusterFile]]:
        for number in itertools.count():
            directory = tmp_path / str(number)
            file = cluster_in(directory, "first")
            snapshots.take(directory, file, "one")
            cluster_in(directory, "second")
            (directory / "broker-1" / "data-2" / "u-0").mkdir(parents=True)
            (directory / "broker-1" / "data-2" / "u-0" / "00.log").write_text("made later")
            baseline = layout.control_process(directory).directory / layout.BASELINE_FILE
            baseline.parent.mkdir()
            baseline.write_text("{}")
            yield directory, file

    return make()


@pytest.mark.parametrize("amid", [False, True], ids=["before a step", "amid a step"])
def test_a_restore_that_is_killed_at_any_step_is_undone_or_finished(clusters, monkeypatch, amid) -> None:
    """Rule 4: no half of each, whatever the step; no copy or note stays."""
    seen = set()
    for last in range(STEPS):
        directory, file = next(clusters)
        before = files(directory)
        if not killed_at(monkeypatch, lambda: snapshots.put_back(directory, file, "one"), last, amid=amid):  # noqa: B023 - called here
            break
        if snapshots.interrupted(directory) is not None:
            with pytest.raises(
                TidegaugeError, match=r"of snapshot one was interrupted.*`tidegauge up --dir /.*` finishes"
            ):
                snapshots.require_settled(directory)
        sentence = snapshots.settle(directory)
        seen.add(sentence.partition(";")[0])
        assert texts(directory) == ({"first"} if "has been finished" in sentence else {"second"}), (last, sentence)
        if "has been finished" not in sentence:
            unnoted = [] if sentence else [Path(".restore.json.tmp")]  # a note that was killed before it had its name
            assert [path for path in files(directory) if path not in unnoted] == before, last
        assert snapshots.interrupted(directory) is None
        snapshots.require_settled(directory)
        snapshots.put_back(directory, file, "one")
        expected = [path for path in before if "broker-1/data-2" not in str(path) and path.name != "baseline.json"]
        noted = Path("logs/lab.events.jsonl")
        restored = sorted([*expected, noted])
        assert (texts(directory), files(directory)) == ({"first"}, restored), "the next restore is whole"
        events = list(read_events(directory / noted))
        assert 1 <= len(events) <= 3, "a restore that was finished is noted, once more if that was interrupted"
        assert {event["kind"] for event in events} == {"restore"}
    else:
        pytest.fail("it has more steps")
    assert len(seen) == 3, f"nothing had begun, nothing was replaced, and some was: {seen}"


@pytest.mark.parametrize("amid", [False, True], ids=["before a step", "amid a step"])
def test_settling_may_be_killed_at_any_step_too(clusters, monkeypatch, amid) -> None:
    """Rule 4: a finished restore is never undone, and the reverse."""
    for first in range(STEPS):
        for second in range(STEPS):
            directory, file = next(clusters)
            if not killed_at(monkeypatch, lambda: snapshots.put_back(directory, file, "one"), first, amid=amid):  # noqa: B023 - called here
                return
            was_killed = killed_at(monkeypatch, lambda: snapshots.settle(directory), second, amid=amid)  # noqa: B023 - called here
            snapshots.settle(directory)
            assert texts(directory) in ({"first"}, {"second"}), (first, second)
            if not was_killed:
                break
    pytest.fail("it has more steps")


@pytest.mark.parametrize("amid", [False, True], ids=["before a step", "amid a step"])
def test_a_snapshot_that_is_killed_at_any_step_is_the_old_one_or_the_new_one(clusters, monkeypatch, amid) -> None:
    """Rule 2: one of the same name is never lost to a kill between two renames, or half removed."""
    seen = set()
    for last in range(STEPS):
        directory, file = next(clusters)
        if not killed_at(monkeypatch, lambda: snapshots.take(directory, file, "one"), last, amid=amid):  # noqa: B023 - called here
            break
        snapshots.settle_names(directory)
        assert snapshots.names(directory) == ["one"]
        snapshots.require(directory, file, "one")
        assert [path.name for path in (directory / layout.SNAPSHOTS).iterdir()] == ["one"], "nothing is left beside"
        cluster_in(directory, "third")
        snapshots.put_back(directory, file, "one")
        [found] = texts(directory)
        seen.add(found)
    else:
        pytest.fail("it has more steps")
    assert seen == {"first", "second"}


def test_data_that_cannot_be_replaced_leave_the_cluster_down_and_the_restore_to_be_finished(
    clusters, monkeypatch
) -> None:
    """The sentence says so; the next attempt goes on from there."""
    directory, file = next(clusters)

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error", "/a/path")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", refuse)
        with pytest.raises(TidegaugeError, match=r"/a/path: Input/output error; the cluster stays down") as refused:
            snapshots.put_back(directory, file, "one")
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert snapshots.interrupted(directory) == "one"
    assert "has been finished" in snapshots.settle(directory)
    assert texts(directory) == {"first"}
    assert snapshots.settle(directory) == "", "there is nothing to settle any more"
