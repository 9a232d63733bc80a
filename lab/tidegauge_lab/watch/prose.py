"""Markdown to HTML that the page may show: HTML in it is text, and links go where the page has a place. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

Link = Callable[[str], str]
"""Maps a link's target in the source to its target on the page; empty: none."""
_EXTERNAL = ("http://", "https://")
# Without ``html`` each < of the source is text; the parser lets no javascript: or data: through as a link's target.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")


def as_html(source: str, link: Link) -> str:
    """Return Markdown as HTML.

    Args:
        source: CommonMark with tables; HTML in it is shown as text.
        link: where its links and images go; a link that goes nowhere is shown as its text alone.
    """
    tokens = _PARSER.parse(source)
    for place, token in enumerate(tokens):
        if token.type == "inline":
            token.children = _linked(token.children or (), link)
        elif token.type == "heading_open":
            token.attrSet("id", _slug(tokens[place + 1].content))
    return str(_PARSER.renderer.render(tokens, _PARSER.options, {}))


def _slug(heading: str) -> str:
    """Return what links name a heading by, as on GitHub."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _linked(tokens: Sequence[Token], link: Link) -> list[Token]:
    """Return the tokens of a text with the page's links."""
    kept: list[Token] = []
    open_links: list[bool] = []
    for token in tokens:
        if token.type == "link_open":
            open_links.append(_link_goes(token, link))
        elif token.type == "image":
            token.attrSet("src", link(str(token.attrGet("src"))))
        if token.type not in {"link_open", "link_close"} or (open_links and open_links[-1]):
            kept.append(token)
        if token.type == "link_close":
            open_links.pop()
    return kept


def _link_goes(token: Token, link: Link) -> bool:
    """Give a link its target on the page; return whether it has one."""
    target = str(token.attrGet("href"))
    if target.startswith(_EXTERNAL):
        token.attrSet("rel", "noreferrer")
    else:
        target = link(target)
    token.attrSet("href", target)
    if not target.startswith("#"):
        token.attrSet("target", "_blank")  # the cluster stays in view
    return bool(target)
