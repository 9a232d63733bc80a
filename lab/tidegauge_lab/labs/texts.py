"""The labs' pages: ``docs/labs`` in a checkout, ``tidegauge_lab/labs/texts`` where the package is installed.

A page is Markdown: a title ``# N. QUESTION``, and the sections Question, Predict, Do, What you see, Why, in this order.
``lab start`` shows the first three, so that nothing is given away before the prediction. Chinese pages
(``docs/zh/labs``) have the same sections under Chinese headings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.labs.model import Lab

_PACKAGED = Path(__file__).parent / "texts"
_CHECKOUT = Path(__file__).parents[3] / "docs"
ENGLISH = "en"
CHINESE = "zh"
LANGUAGES = (ENGLISH, CHINESE)
SECTIONS = ("Question", "Predict", "Do", "What you see", "Why")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_OTHER_LANGUAGE = re.compile(r"(?<=\n\n)\[[^]\n]+\]\([^)\n]+\)\n\n")


@dataclass(frozen=True, slots=True)
class Text:
    """A page.

    Attributes:
        title: the question in one line, without its number.
        sections: their bodies by name (``SECTIONS``, whatever the page's language).
        headings: what the page calls each section, by name.
        source: the page as it is in its file.
    """

    title: str
    sections: dict[str, str]
    headings: dict[str, str]
    source: str

    @property
    def shown(self) -> str:
        """The page as a terminal shows it: without comments for tests and the link to the other language."""
        return _OTHER_LANGUAGE.sub("", _COMMENT.sub("", self.source), count=1)


def locale_language(environment: Mapping[str, str]) -> str:
    """Return the language of a locale's messages by POSIX's order of variables."""
    locale = next((found for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (found := environment.get(name))), "")
    return CHINESE if re.match(r"zh(?![a-z])", locale, re.IGNORECASE) else ENGLISH


def text_of(lab: Lab, language: str = ENGLISH) -> Text:
    """Return a lab's page in one of ``LANGUAGES``.

    Raises:
        TidegaugeError: it is not there, so the installation is damaged.
    """
    below = "" if language == ENGLISH else language
    directory = _PACKAGED / below if _PACKAGED.is_dir() else _CHECKOUT / below / "labs"
    try:
        return parsed((directory / lab.page).read_text(encoding="utf-8"))
    except OSError as problem:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"the page of lab {lab.name} is not there: {problem}"
        ) from problem


def parsed(source: str) -> Text:
    """Take a page apart."""
    first = source.partition("\n")[0]
    title = re.sub(r"^# (\d+\. )?", "", first)
    parts = _HEADING.split(_COMMENT.sub("", source))[1:]
    return Text(
        title,
        sections={name: body.strip() for name, body in zip(SECTIONS, parts[1::2], strict=True)},
        headings=dict(zip(SECTIONS, parts[::2], strict=True)),
        source=source,
    )
