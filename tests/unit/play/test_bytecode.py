"""Archives of compiled modules: what they hold, and that a module that has changed since is never sent as it was."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tidegauge_lab.play.bytecode import carried_hash, compiled_archive, hash_of
from tidegauge_lab.play.code_archive import archive, modules_needed, roots
from tidegauge_lab.play.compiling import LEFT_OUT

SOURCE = b'''"""What it is."""


class Plain:
    """A class."""

    def act(self, value: int) -> int:
        """Do it."""
        assert value > 0, "not above zero"
        return value


def only() -> None:
    """Do nothing."""
'''
ENTRIES = ("tidegauge.in_sync",)


def zipped(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as out:
        for name, text in files.items():
            out.writestr(name, text)
    return content.getvalue()


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, as Python imports it from an archive that has no source of it."""
    (tmp_path / "all.zip").write_bytes(compiled_archive(zipped({"of_the_archive.py": SOURCE})))
    monkeypatch.syspath_prepend(str(tmp_path / "all.zip"))
    yield import_module("of_the_archive")
    del sys.modules["of_the_archive"]


def test_docstrings_are_left_out_and_assertions_stay(imported: Any) -> None:
    assert imported.__file__.endswith("of_the_archive.pyc")
    assert [one.__doc__ for one in (imported, imported.only, imported.Plain.act)] == [None] * 3
    assert imported.only() is None
    with pytest.raises(AssertionError, match="not above zero"):
        imported.Plain().act(0)


def test_a_class_keeps_a_docstring_so_that_a_dataclass_makes_none(imported: Any) -> None:
    assert imported.Plain.__doc__ == "."


def test_what_is_left_out_is_named_by_the_first_part_of_its_path() -> None:
    given = zipped({"kept.py": b"", "left/__init__.py": b"", "left/more.py": b"", "gone.py": b"", "note.txt": b""})
    with zipfile.ZipFile(io.BytesIO(compiled_archive(given, {"left", "gone"}))) as found:
        assert found.namelist() == ["kept.pyc"]
    assert compiled_archive(given) == compiled_archive(given)


def test_encodings_before_unicode_are_left_out_and_python_keeps_its_own() -> None:
    names = ("__init__", "aliases", "ascii", "cp437", "cp1252", "gb2312", "iso8859_1", "latin_1", "utf_16", "utf_8")
    given = zipped({f"encodings/{one}.py": b"" for one in names})
    with zipfile.ZipFile(io.BytesIO(compiled_archive(given, LEFT_OUT))) as found:
        kept = {Path(one).stem for one in found.namelist()}
    assert kept == {"__init__", "aliases", "ascii", "cp437", "latin_1", "utf_16", "utf_8"}


def test_a_module_that_was_changed_since_is_sent_as_its_source(tmp_path: Path) -> None:
    packages = roots()
    files = {
        file.relative_to(packages["tidegauge"].parent).as_posix(): file.read_bytes()
        for file in modules_needed(ENTRIES, packages).values()
    }
    changed = "tidegauge/in_sync.py"
    compiled = tmp_path / "modules.zip"
    compiled.write_bytes(compiled_archive(zipped({**files, changed: files[changed] + b"\n# as it was before\n"})))
    with zipfile.ZipFile(io.BytesIO(archive(ENTRIES, compiled))) as found:
        assert {name for name in found.namelist() if name.endswith(".py")} == {changed}
        assert found.read(changed) == files[changed]
        assert carried_hash(found.read("tidegauge/__init__.pyc")) == hash_of(files["tidegauge/__init__.py"])


def test_without_an_archive_of_compiled_modules_all_are_sources(tmp_path: Path) -> None:
    (tmp_path / "damaged.zip").write_bytes(b"no archive")
    for absent in (None, tmp_path / "nowhere.zip", tmp_path / "damaged.zip"):
        with zipfile.ZipFile(io.BytesIO(archive(ENTRIES, absent))) as found:
            assert {name.rpartition(".")[2] for name in found.namelist()} == {"py"}
