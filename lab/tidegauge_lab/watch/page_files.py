"""The page's own files: its document, its styles, and its scripts in the order in which they are loaded."""

from __future__ import annotations

from importlib import resources

DOCUMENT = "index.html"
STYLES = ("watch.css", "lessons.css", "stage.css")
SCRIPTS = tuple(
    f"{name}.js"
    for name in (
        *("source", "language", "page", "chinese", "buttons", "form", "brokers", "partitions", "details", "topics"),
        *("groups", "shares", "transactions"),
        *("history", "events", "lessons", "labs", "stories", "timeline", "stage", "members"),
        "watch",  # the last: it begins
    )
)


def page_file(name: str) -> str:
    """Return a file's text."""
    return resources.files("tidegauge_lab.watch").joinpath("page", name).read_text(encoding="utf-8")
