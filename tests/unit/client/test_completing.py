"""Tab completes topics, partitions and groups of the cluster, and nothing if it can't be asked (completing.py)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from click.shell_completion import ShellComplete

from tidegauge_client.cli import completing
from tidegauge_client.cli.main import root


class FakeAdmin:
    """A cluster with two topics of the user's and one group."""

    asked: list[tuple[str, str]] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, servers: str) -> None:
        self.asked.append(("servers", servers))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def list_topics(self) -> list[str]:
        return ["__consumer_offsets", "orders", "payments"]

    async def metadata(self) -> Any:
        return SimpleNamespace(topics={"orders": SimpleNamespace(partitions={0: 0, 1: 0})})

    async def list_groups_there(self, **_: object) -> Any:
        return [SimpleNamespace(group_id="billing")], ""


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeAdmin.asked.clear()
    monkeypatch.setattr(completing, "Admin", FakeAdmin)
    monkeypatch.setattr(completing, "resolve_bootstrap", lambda given, directory, *_: given or str(directory))


def completed(*words: str) -> list[str]:
    """Return what Tab shows after a command line, whose last word is incomplete."""
    shell = ShellComplete(root, {}, "tidegauge", "_TIDEGAUGE_COMPLETE")
    return [one.value for one in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["describe-topic", ""], ["orders", "payments"]),
        (["describe-topic", "__"], ["__consumer_offsets"]),
        (["delete-topic", "or"], ["orders"]),
        (["produce", "pa"], ["payments"]),
        (["consume", "x"], []),
        (["verify", "or"], ["orders"]),
        (["describe-group", ""], ["billing"]),
        (["reset-offsets", "bi"], ["billing"]),
        (["explain", "orders-"], ["orders-0", "orders-1"]),
        (["explain", "group:b"], ["group:billing"]),
        (["kill", "--leader-of", "orders-1"], ["orders-1"]),
        (["hold-fetch", "o"], ["orders-0", "orders-1"]),
        (["timeline", "o"], ["orders-0", "orders-1"]),
        (["wait", "--leader", "orders-1"], ["orders-1"]),
        (["wait", "--truncated", "o"], ["orders-0", "orders-1"]),
        (["wait", "--group", "b"], []),
    ],
)
def test_names_of_the_cluster_are_completed(words: list[str], found: list[str]) -> None:
    assert completed(*words) == found


def test_the_cluster_is_that_of_the_options(tmp_path: Path) -> None:
    completed("describe-topic", "-b", "127.0.0.1:7", "")
    completed("describe-topic", "--dir", str(tmp_path), "")
    assert FakeAdmin.asked == [("servers", "127.0.0.1:7"), ("servers", str(tmp_path))]


def test_a_cluster_that_can_not_be_asked_completes_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An error in the middle of the line that is being typed would not help."""

    def fail(*_: object) -> str:
        raise RuntimeError("defect")

    monkeypatch.setattr(completing, "resolve_bootstrap", fail)
    assert completed("describe-topic", "") == []
    assert capfd.readouterr() == ("", "")
