"""The files of the page ``play``: static, of one origin; a server on this machine or any other can give them out.

The page is ``tidegauge watch``'s with another source: its document with a section more, its styles and scripts as
they are, but for ``source.js``. Rules:

    1. The content security policy allows what comes from the page's own origin, WebAssembly, and nothing else. It
       is in the document, so that it holds wherever the files are served.
    2. The service worker keeps all files, under the digest of their contents; a page that was opened once works
       without a network.
"""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources
from pathlib import Path

from tidegauge.faults.schema import vocabulary
from tidegauge_lab.play.code_archive import archive
from tidegauge_lab.play.compiling import MODULES
from tidegauge_lab.play.runtime import DIRECTORY, FILES
from tidegauge_lab.play.stories import exercises, stories
from tidegauge_lab.watch.chinese import sentences_of_views
from tidegauge_lab.watch.page_files import DOCUMENT, SCRIPTS, STYLES, page_file

OWN_SCRIPTS = (
    "texts.js",
    "desk.js",
    "flight.js",
    "hand.js",
    "tales.js",
    "beside.js",
    "rule.js",
    "play.js",
)
OWN_STYLES = ("play.css",)
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; "
    "style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'"
)
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".zip": "application/zip",
}
_SERVICE_WORKER = "service-worker.js"
_TAKEN_OUT = re.compile(r'<(?:script src|link rel="stylesheet"|meta name="tidegauge-token")[^>]*>(?:</script>)?\n')


def own_file(name: str) -> str:
    """Return the text of a file of this page alone."""
    return resources.files("tidegauge_lab.play").joinpath("page", name).read_text(encoding="utf-8")


def document() -> str:
    """Return the page's document: ``tidegauge watch``'s, with the section of ``play``."""
    links = [f'<link rel="stylesheet" href="{name}">' for name in (*STYLES, *OWN_STYLES)]
    scripts = [f'<script src="{name}" defer></script>' for name in ("texts.js", *SCRIPTS, *OWN_SCRIPTS[1:])]
    head = "\n".join([f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">', *links, *scripts, "</head>"])
    text = _TAKEN_OUT.sub("", page_file(DOCUMENT)).replace("</head>", head)
    for names, place in (
        (("story.html", "pair.html"), '  <div id="verdict"'),
        (("beside.html", "play.html"), '  <section aria-labelledby="brokers-title">'),
    ):
        text = text.replace(place, f"{''.join(map(own_file, names))}{place}", 1)
    return text.replace("{{rule}}", own_file("rule.html"))


def site_files(runtime: Path = DIRECTORY) -> dict[str, bytes]:
    """Return all files by their path.

    Args:
        runtime: where Python for the browser is.

    Raises:
        OSError: it can't be read.
    """
    found: dict[str, bytes] = {"index.html": document().encode()}
    found |= {name: page_file(name).encode() for name in (*STYLES, *SCRIPTS)}
    found |= {name: own_file(name).encode() for name in (*OWN_STYLES, *OWN_SCRIPTS, "source.js", "worker.js")}
    found["vocabulary.json"] = _json(vocabulary())
    found["stories.json"] = _json(stories())
    found["sentences.json"] = _json(sentences_of_views())
    found["exercises.json"] = _json(exercises())
    found["code.zip"] = archive(compiled=runtime / MODULES)
    found |= {f"runtime/{name}": (runtime / name).read_bytes() for name in FILES}
    found[_SERVICE_WORKER] = _service_worker(found)
    return found


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _service_worker(files: dict[str, bytes]) -> bytes:
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\n{len(content)}\n".encode() + content)
    names = ["./", *(f"./{name}" for name in sorted(files) if name != "index.html")]
    text = own_file(_SERVICE_WORKER).replace("{{version}}", digest.hexdigest()[:16])
    return text.replace("{{files}}", json.dumps(names)).encode()


def write_site(directory: Path, runtime: Path = DIRECTORY) -> int:
    """Write all files into a directory; return their size in bytes."""
    files = site_files(runtime)
    for name, content in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return sum(map(len, files.values()))
