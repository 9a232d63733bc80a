"""The labs' pages: ``docs/labs`` in a checkout, ``tidegauge_lab/labs/texts`` where the package is installed.

A page is Markdown: a title ``# N. QUESTION``, and the sections Question, Predict, Do, What you see, Why, in this order.
``lab start`` shows the first three, so that nothing is given away before the prediction.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.labs.model import Lab

_PACKAGED = Path(__file__).parent / "texts"
_CHECKOUT = Path(__file__).parents[3] / "docs" / "labs"
SECTIONS = ("Question", "Predict", "Do", "What you see", "Why")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Text:
    """A page.

    Attributes:
        title: the question in one line, without its number.
        sections: their bodies by heading.
        source: the page as it is in its file.
    """

    title: str
    sections: dict[str, str]
    source: str

    @property
    def shown(self) -> str:
        """The page as a terminal shows it: without the comments that are for tests."""
        return _COMMENT.sub("", self.source)


def text_of(lab: Lab) -> Text:
    """Return a lab's page.

    Raises:
        TidegaugeError: it is not there, so the installation is damaged.
    """
    directory = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
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
    return Text(title, {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}, source)
