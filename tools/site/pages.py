"""From pages of the repository to pages of the site: where each one goes, its links, its lists, the navigation. Pure.

The pages of docs/ are written for whoever reads them in the repository. The site leaves them as they are, and changes
on the way what differs there: links to files outside of docs/, lists right behind a paragraph, and state diagrams.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from posixpath import dirname, join, normpath, relpath
from typing import Any

INDEX = "docs/README.md"
"""The list of all pages: the site's navigation."""
LISTED_BELOW = re.compile(r"\d\d-[^/]*\.md$|docs/contributing/[^/]*\.md$")
"""Pages that the index of their directory lists: chapters, labs and contributors' guides."""
SOURCES = "source"
PROJECT = "project"
CHINESE = "docs/zh"
CHINESE_TITLE = "简体中文"
_FENCE = re.compile(r"^ *(`{3,})[^\n]*\n.*?^ *\1`*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()([^)#\s]+)(#[^)\s]*)?(?=\))")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_CELL = re.compile(r"<t[dh]\b.*?</t[dh]>", re.DOTALL)
_CODE = re.compile(r"<code>.*?</code>", re.DOTALL)
Nav = list[Any]


def place(repository_path: str) -> str:
    """Return a file's place in the site; a directory ends with a slash.

    A file that is no documentation becomes a page that shows it, below ``source/``.
    """
    if repository_path == "README.md":
        return "index.md"
    if repository_path == INDEX:
        return "all-pages.md"
    if repository_path.startswith("docs/"):
        below = repository_path.removeprefix("docs/")
        return f"{below}README.md" if below.endswith("/") else below
    if repository_path.endswith("/"):
        return f"{SOURCES}/{repository_path}README.md"
    if repository_path.endswith(".md") and "/" not in repository_path:
        return f"{PROJECT}/{repository_path}"
    return f"{SOURCES}/{repository_path}" + ("" if repository_path.endswith(".md") else ".md")


def without_escaped_pipes(html: str) -> str:
    r"""Return a page's HTML without the backslashes of ``\|`` in the code of its tables.

    A table of GitHub's Markdown needs them there and does not show them; Python-Markdown shows them, and copies them.
    """

    def in_code(cell: re.Match[str]) -> str:
        return _CODE.sub(lambda code: code[0].replace("\\|", "|"), cell[0])

    return _CELL.sub(in_code, html)


def target(link: str, repository_path: str, is_directory: Callable[[str], bool]) -> str | None:
    """Return the file or directory of a page's link; None if outside."""
    if re.match(r"[a-z]+:", link):
        return None
    path = normpath(join(dirname(repository_path), link))
    return f"{path}/" if is_directory(path) else path


def linked(markdown: str, repository_path: str, is_directory: Callable[[str], bool]) -> Iterator[str]:
    """Yield the files and directories that a page links."""
    for part, is_prose in _parts(markdown):
        if is_prose:
            for found in _LINK.finditer(part):
                path = target(found[1], repository_path, is_directory)
                if path is not None:
                    yield path


def for_the_site(
    markdown: str, repository_path: str, is_directory: Callable[[str], bool], draw: Callable[[str], str]
) -> str:
    """Return a page as the site's generator reads it.

    Args:
        markdown: the page.
        repository_path: its path, for relative links.
        is_directory: whether a path of the repository is one.
        draw: turns the lines of a ``mermaid`` block into HTML.
    """
    here = dirname(place(repository_path))

    def moved(found: re.Match[str]) -> str:
        path = target(found[1], repository_path, is_directory)
        if path is not None and path.endswith("/") and is_directory(path) and path.startswith("docs/"):
            path = f"{path}README.md"
        return found[0] if path is None else relpath(place(path), here or ".") + (found[2] or "")

    shown = []
    for part, is_prose in _parts(markdown):
        if is_prose:
            shown.append(with_lists_apart(_LINK.sub(moved, part)))
        elif part.startswith("```mermaid\n"):
            shown.append(draw(part.partition("\n")[2].rpartition("\n")[0]))
        else:
            shown.append(part)
    return "".join(shown)


def _parts(markdown: str) -> Iterator[tuple[str, bool]]:
    """Yield prose and fenced blocks in turns, with whether it is prose."""
    at = 0
    for fence in _FENCE.finditer(markdown):
        yield markdown[at : fence.start()], True
        yield fence[0], False
        at = fence.end()
    yield markdown[at:], True


def with_lists_apart(prose: str) -> str:
    """Return prose with an empty line before each list, as Python-Markdown needs."""
    lines: list[str] = []
    for line in prose.split("\n"):
        last = lines[-1] if lines else ""
        if _ITEM.match(line) and last.strip() and not last.startswith((" ", "#")) and not _ITEM.match(last):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def rows(index: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each section of the index, with what the first cells of its table link."""
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        cells = re.findall(r"^\| (.*?) \|", body, re.MULTILINE)
        yield title.strip(), [found[1] for cell in cells for found in _LINK.finditer(cell)]


def navigation(read: Callable[[str], str], pages: Collection[str]) -> Nav:
    """Return the site's navigation by the index and the directories' indexes.

    Args:
        read: gives the text of a page of the repository.
        pages: all pages of docs/, by their paths in the repository.
    """
    nav: Nav = [{"Home": "index.md"}]
    for title, links in rows(read(INDEX)):
        listed = [one for link in links if not (one := normpath(join("docs", link))).startswith(CHINESE)]
        nav.append({title: [_entry(one, read, pages) for one in listed]})
    chinese = [one for one in pages if one.startswith(f"{CHINESE}/")]
    if chinese:
        nav.append({CHINESE_TITLE: _translated(nav, chinese)})
    nav.append({"All pages": place(INDEX)})
    return nav


def _entry(path: str, read: Callable[[str], str], pages: Collection[str]) -> Any:
    """Return a page, or an index with its pages, or a directory's pages."""
    below = [one for one in pages if dirname(one) == path]
    if below:
        return {_heading(f"{path}/README.md", read, pages): [f"{place(path)}/README.md", *map(place, sorted(below))]}
    if not path.endswith("/README.md"):
        return place(path)
    links = (normpath(join(dirname(path), found[1])) for found in _LINK.finditer(read(path)))
    listed = [one for one in dict.fromkeys(links) if LISTED_BELOW.search(one) and one in pages]
    return {_heading(path, read, pages): list(map(place, [path, *listed]))} if listed else place(path)


def _heading(path: str, read: Callable[[str], str], pages: Collection[str]) -> str:
    return read(path).partition("\n")[0].removeprefix("# ") if path in pages else dirname(path).rpartition("/")[2]


def _translated(nav: Nav, chinese: Collection[str]) -> Nav:
    """Return the navigation of translated pages, in the originals' order."""
    there = {place(one) for one in chinese}

    def twins(entries: Sequence[Any]) -> Nav:
        found: Nav = []
        for entry in entries:
            if isinstance(entry, dict):
                [(title, below)] = entry.items()
                inner = twins([below] if isinstance(below, str) else below)
                found += [{_CHINESE_TITLES.get(title, title): inner}] if len(inner) > 1 else inner
            else:
                twin = f"zh/{'README.md' if entry == 'index.md' else entry}"
                found += [twin] if twin in there else []
        return found

    return twins(nav)


_CHINESE_TITLES = {"Guide": "指南", "Labs": "实验", "Tutorial": "教程", "How-to guides": "操作", "Reference": "参考"}


def source_page(repository_path: str, text: str, language: str) -> str:
    """Return the page that shows a file of the repository that pages link."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"---\nsearch:\n  exclude: true\n---\n\n# {repository_path}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def directory_page(repository_path: str, entries: Sequence[str]) -> str:
    """Return the page that lists a linked directory."""
    listed = "\n".join(f"- `{name}`" for name in entries)
    return f"---\nsearch:\n  exclude: true\n---\n\n# {repository_path}\n\n{listed}\n"


def with_characters_apart(text: str) -> str:
    """Return a text with zero-width spaces around each Chinese character."""
    return re.sub(r"(?<=[\u3400-\u9fff])(?=\S)|(?<=\S)(?=[\u3400-\u9fff])", "\u200b", text)
