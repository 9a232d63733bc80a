"""MkDocs calls these (``hooks`` in mkdocs.yml): the repository's pages and the generated reference become the site."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from tools import gallery
from tools.site import pages, reference, state_diagram

from tidegauge_lab.play.runtime import missing
from tidegauge_lab.play.site import write_site

ROOT = Path(__file__).parents[2]
LANGUAGES = {".py": "python", ".proto": "protobuf", ".go": "go", ".ts": "typescript", ".java": "java", ".h": "c"}


def is_directory(repository_path: str) -> bool:
    """Return whether a path of the repository is a directory."""
    return (ROOT / repository_path).is_dir()


def read(repository_path: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / repository_path).read_text(encoding="utf-8")


def documents() -> list[str]:
    """Return the paths of all pages of docs/."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))


def figure(mermaid: str) -> str:
    """Return a state diagram as HTML."""
    return f'<figure class="states">{state_diagram.svg(mermaid)}</figure>'


def shown(repository_path: str) -> str:
    """Return a page of the repository as the site's generator reads it."""
    return pages.for_the_site(read(repository_path), repository_path, is_directory, figure)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from docs/README.md, and the reference behind what it lists."""
    nav = pages.navigation(read, documents())
    [reference_section] = [entry["Reference"] for entry in nav if "Reference" in entry]
    reference_section.append({reference.TITLE: list(reference.pages())})
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/: the root's, the reference, and each file that a page links."""

    def add(site_path: str, content: str) -> None:
        files.append(File.generated(config, site_path, content=content))

    index = files.get_file_from_path("README.md")
    assert index is not None
    files.remove(index)
    at_the_root = [path.name for path in sorted(ROOT.glob("*.md"))]
    for path in [*at_the_root, pages.INDEX]:
        add(pages.place(path), shown(path))
    for site_path, text in reference.pages().items():
        add(site_path, text)
    for path in sorted({one for page in [*at_the_root, *documents()] for one in linked_elsewhere(page)}):
        add(pages.place(path), _page_of(path))
    return files


def linked_elsewhere(page: str) -> list[str]:
    """Return the linked files and directories that are no pages yet."""
    found = pages.linked(read(page), page, is_directory)
    return [
        path
        for path in found
        if (path.endswith("/") and not (ROOT / path / "README.md").exists())
        or not (path.endswith("/") or path.startswith("docs/") or ("/" not in path and path.endswith(".md")))
    ]


def _page_of(path: str) -> str:
    file = ROOT / path
    if file.is_dir():
        return pages.directory_page(path, _tracked(path))
    if file.suffix == ".md":
        return shown(path)
    language = LANGUAGES.get(file.suffix, "text")
    return pages.source_page(path, file.read_text(encoding="utf-8"), language)


def _tracked(path: str) -> list[str]:
    """Return the files in a directory, without built ones."""
    directory = ROOT / path
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "."]
        names = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout.splitlines()
    else:
        names = [str(one.relative_to(directory)) for one in directory.rglob("*") if one.is_file()]
    return sorted(name for name in names if "__pycache__" not in name)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Return a page of docs/ for the generator; generated ones are unchanged."""
    if page.file.generated_by is not None:
        return markdown
    return pages.for_the_site(markdown, f"docs/{page.file.src_uri}", is_directory, figure)


def on_page_content(html: str, **_: Any) -> str:
    """Return the page's HTML with commands in tables as they are typed."""
    return pages.without_escaped_pipes(html)


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Say which language a translated page is in: browsers and screen readers go by it."""
    translated = f"docs/{page.file.src_uri}".startswith(f"{pages.CHINESE}/")
    return output.replace('<html lang="en"', '<html lang="zh-Hans"', 1) if translated else output


def on_post_build(config: MkDocsConfig) -> None:
    """Separate Chinese characters in the search index, which finds whole words only; add ``play`` and recordings."""
    file = Path(config.site_dir) / "search" / "search_index.json"
    index = json.loads(file.read_text(encoding="utf-8"))
    for entry in index["docs"]:
        for name in ("title", "text"):
            entry[name] = pages.with_characters_apart(entry[name])
    file.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    if not missing():
        write_site(Path(config.site_dir) / "play")
    gallery.write_recordings(Path(config.site_dir) / "gallery")
