"""Pages to read beside the cluster: the labs' pages, and in a checkout the pages of ``docs``."""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tidegauge_client.languages import ENGLISH
from tidegauge_lab.labs.catalogue import LABS, lab_named
from tidegauge_lab.labs.model import Lab
from tidegauge_lab.labs.texts import SECTIONS, text_of
from tidegauge_lab.scenario.loader import load
from tidegauge_lab.scenario.themes import themes
from tidegauge_lab.watch.prose import as_html

Json = dict[str, Any]
CHECKOUT = Path(__file__).parents[3] / "docs"
_IMAGES: Mapping[str, str] = {".png": "image/png", ".svg": "image/svg+xml"}
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="stylesheet" href="/watch.css">
<link rel="stylesheet" href="/lessons.css">
</head>
<body>
<main class="prose page">
{body}
</main>
</body>
</html>
"""


def contents() -> Json:
    """Return the choice of labs and stories, each with one sentence."""
    return {
        "labs": [{"name": lab.name, "number": lab.number, "title": text_of(lab).title} for lab in LABS],
        "stories": [
            {"name": name, "title": load(name).title, "theme": theme.title["en"]}
            for theme in themes()
            for name in theme.scenarios
        ],
    }


def lab_page(name: str, language: str = ENGLISH) -> Json:
    """Return a lab's page in parts: its question in one line, and each section as HTML.

    Args:
        name: the lab's.
        language: of the page, one of ``LANGUAGES``.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is no such lab.
    """
    lab = lab_named(name)
    text = text_of(lab, language)
    link = partial(link_of_lab, language=language)
    return {
        "name": lab.name,
        "number": lab.number,
        "title": text.title,
        "sections": {section: as_html(text.sections[section], link) for section in SECTIONS},
    }


def link_of_lab(target: str, language: str = ENGLISH) -> str:
    """Return where a link of a lab's page goes: to another lab here, to a page of docs, or nowhere."""
    path, _, place = target.partition("#")
    for lab in LABS:
        if path == lab.page:
            return f"#{fragment_of(lab)}"
    name = posixpath.normpath(posixpath.join("labs" if language == ENGLISH else f"{language}/labs", path))
    return f"docs/{name}{f'#{place}' if place else ''}" if _file(name) is not None else ""


def fragment_of(lab: Lab) -> str:
    """Return the part of the page's address that opens a lab."""
    return f"lab-{lab.name}"


def document(name: str) -> tuple[str | bytes, str] | None:
    """Return a file of ``docs`` and its media type, pages as HTML; None if absent."""
    path = _file(name)
    if path is None:
        return None
    if path.suffix in _IMAGES:
        return path.read_bytes(), _IMAGES[path.suffix]
    source = path.read_text(encoding="utf-8")
    source = re.sub(r"^<!--.*?-->\n", "", source, flags=re.MULTILINE | re.DOTALL)
    title = html.escape(source.partition("\n")[0].removeprefix("# "))
    return _PAGE.format(title=title, body=as_html(source, lambda target: target)), "text/html"


def _file(name: str) -> Path | None:
    """Return a page or picture below ``docs``; None for anything else."""
    path = (CHECKOUT / name).resolve()
    is_shown = path.suffix in {".md", *_IMAGES} and path.is_relative_to(CHECKOUT.resolve()) and path.is_file()
    return path if is_shown else None
