"""Texts in YAML that come with a package, such as its sentences in another language."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml


def packaged_texts(package: str, name: str) -> Any:
    """Return the values of a YAML file in a package's directory."""
    return yaml.safe_load(resources.files(package).joinpath(name).read_text(encoding="utf-8"))
