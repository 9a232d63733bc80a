"""The command line finds its verbs in the file of its own installation, else among other packages' entry points."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tidegauge_client.cli.verb_table import VerbTable, own_verbs

ROOT = Path(__file__).parents[3]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
ANOTHER = """[console_scripts]
kill = other:main

[tidegauge.verbs]
kill = other.verbs:kill
conjure = pprint:pformat

[tidegauge.verbs.more]
hidden = other:hidden
"""


def installed(directory: Path, name: str, text: str) -> Path:
    (directory / f"{name}-1.0.dist-info").mkdir()
    (directory / f"{name}-1.0.dist-info" / "entry_points.txt").write_text(text, encoding="utf-8")
    (directory / f"{name}-1.0.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n", encoding="utf-8")
    return directory


def test_the_group_of_a_file_is_read_and_no_other() -> None:
    assert own_verbs(ANOTHER) == {"kill": "other.verbs:kill", "conjure": "pprint:pformat"}


def test_the_installation_has_the_declared_verbs() -> None:
    assert set(DECLARED["tidegauge.verbs"]) <= set(VerbTable().names)


def test_a_verb_of_its_own_is_found_without_a_search(tmp_path: Path) -> None:
    program = (
        "import sys; from tidegauge_client.cli.verb_table import VerbTable; "
        "print(VerbTable().load('list-topics').name, 'importlib.metadata' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.stdout.split() == ["list-topics", "False"]


def test_verbs_of_other_packages_are_found_too_and_replace_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(installed(tmp_path, "another", ANOTHER)))
    table = VerbTable()
    assert "conjure" in table.names
    assert getattr(table.load("conjure"), "__name__", "") == "pformat"
    assert getattr(table.load("kill"), "name", "") == "kill"
    assert table.load("no-such-verb") is None


def test_without_the_file_all_verbs_are_searched_for(tmp_path: Path) -> None:
    table = VerbTable([str(tmp_path)])
    assert set(DECLARED["tidegauge.verbs"]) <= set(table.names)
    assert getattr(table.load("list-topics"), "name", "") == "list-topics"
