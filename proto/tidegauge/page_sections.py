"""Parts of documentation pages that are written by code: text between two markers, which are comments of the page."""

from __future__ import annotations


def with_section(page: str, begin: str, end: str, text: str) -> str:
    """Return a page with the text between two markers replaced; the markers stay.

    Raises:
        ValueError: a marker is missing.
    """
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the page lacks {begin} ... {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"
