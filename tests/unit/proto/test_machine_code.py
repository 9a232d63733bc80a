"""Machine code is used if it is installed, fits and is wanted; else the sources run, and a reason is given."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

import pytest

from tidegauge import machine_code
from tidegauge.machine_code import PACKAGE, VARIABLE, Finder, Use, digest, use

LIBRARY = "_crc32c"
"""An extension module that is installed: it stands for the one with the machine code."""
PROTO = Path(machine_code.__file__).parent
SUFFIX = EXTENSION_SUFFIXES[0]
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    before = list(sys.meta_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in (PACKAGE, LIBRARY):
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = tmp_path / PACKAGE / "modules"
    modules.mkdir(parents=True)

    def write(*, library: bytes | None = None, sources: str | None = None, suffix: str = SUFFIX) -> None:
        names = ("tidegauge.errors", "tidegauge.kafka.frames")
        right = digest(names, {"tidegauge": PROTO})
        real = find_spec("crc32c._crc32c")
        assert real is not None
        assert real.origin is not None
        (modules / f"{LIBRARY}{SUFFIX}").write_bytes(Path(real.origin).read_bytes() if library is None else library)
        (tmp_path / PACKAGE / "__init__.py").write_text(
            f"MODULES = {names!r}\nHELPERS = ()\nLIBRARY = {LIBRARY!r}\nSUFFIX = {suffix!r}\n"
            f"SOURCES = {right if sources is None else sources!r}\n"
        )

    yield write
    sys.meta_path[:] = before
    for name in (PACKAGE, LIBRARY):
        sys.modules.pop(name, None)


def test_without_the_package_the_sources_run_and_nothing_is_amiss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "find_spec", lambda _: None)
    assert use({}) == Use(is_compiled=False)
    assert str(use({})) == "interpreted"


def test_machine_code_of_these_sources_is_found_before_them(install: Install, tmp_path: Path) -> None:
    install()
    assert use({}) == Use(is_compiled=True)
    finder = sys.meta_path[0]
    found = finder.find_spec("tidegauge.kafka.frames", None)
    assert found is not None
    assert found.origin == str(tmp_path / PACKAGE / "modules" / "tidegauge" / "kafka" / f"frames{SUFFIX}")
    assert finder.find_spec("tidegauge.kafka.messages", None) is None, "what was not compiled comes from its source"


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no", "false"])
def test_a_variable_turns_it_off(install: Install, word: str) -> None:
    install()
    before = list(sys.meta_path)
    assert str(use({VARIABLE: word})) == f"interpreted: TIDEGAUGE_COMPILED is {word}"
    assert sys.meta_path == before
    assert use({VARIABLE: "on"}).is_compiled


def test_machine_code_of_other_sources_is_not_used(install: Install) -> None:
    """A checkout that was changed since must not run what it was before."""
    install(sources="another digest")
    assert str(use({})) == "interpreted: tidegauge_compiled is of other sources"


def test_machine_code_of_another_python_is_not_used(install: Install) -> None:
    install(suffix=".cpython-27-other.so")
    assert str(use({})) == "interpreted: tidegauge_compiled is of another Python or another machine"


def test_machine_code_that_does_not_load_is_not_used(install: Install) -> None:
    """All or none: the finder goes, too."""
    install(library=b"no machine code")
    before = list(sys.meta_path)
    assert str(use({})).startswith("interpreted: tidegauge_compiled does not load: ")
    assert sys.meta_path == before


def test_the_digest_is_that_of_names_and_sources(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("ANSWER = 42\n")
    (tmp_path / "two.py").write_text("ANSWER = 42\n")
    roots = {"package": tmp_path}
    first = digest(["package.one"], roots)
    assert first != digest(["package.two"], roots)
    (tmp_path / "one.py").write_text("ANSWER = 43\n")
    assert digest(["package.one"], roots) != first
    with pytest.raises(OSError, match="three"):
        digest(["package.three"], roots)


def test_a_finder_knows_its_table_alone(tmp_path: Path) -> None:
    finder = Finder(tmp_path, {"a.b.c"}, ".so")
    assert finder.find_spec("a.b", None) is None
    found = finder.find_spec("a.b.c", None)
    assert found is not None
    assert found.origin == str(tmp_path / "a" / "b" / "c.so")
