"""A run as one HTML file that needs no cluster, no server and no network: the page, its time line, and the steps.

Rules:
    1. Scripts, styles and steps are in the file. Its content security policy names the hash of each of its scripts
       and of its style, and nothing else: it loads and sends nothing, and a name in the steps can't become a script.
    2. It carries its sentences in Chinese, too; its language is the browser's, or the address's (``?lang=zh``).
    3. It has what the event logs have (docs/events.md): no token of the page, no address, no path of the cluster.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from tidegauge_lab.watch.chinese import sentences_of_views
from tidegauge_lab.watch.history import Recorded
from tidegauge_lab.watch.page_files import DOCUMENT, SCRIPTS, STYLES, page_file

_LOADED = re.compile(r'<(?:script src|link rel="stylesheet"|meta name="tidegauge-token")[^>]*>(?:</script>)?\n')


def recording_of(
    recorded: Recorded,
    name: str,
    vocabulary: dict[str, Any],
    story: dict[str, Any] | None = None,
    in_chinese: Mapping[str, str] | None = None,
) -> str:
    """Return the file's text.

    Args:
        recorded: the run.
        name: of the cluster; of a path, only the last part is shown.
        vocabulary: the declared faults and actions, of which the page takes the words on its buttons.
        story: what the run shows, if that is known: ``title`` and ``text``, the ``verdict`` on its end, and the
            ``values`` of records, by partition, then by OFFSET@EPOCH; event logs have none.
        in_chinese: the story's sentences by the English ones; the views' sentences are always included.
    """
    style = "".join(map(page_file, STYLES))
    scripts = [page_file(one) for one in SCRIPTS]
    allowed = " ".join(map(_source_of, scripts))
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {_source_of(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    run = recorded.as_json() | {"name": PurePath(name).name, "vocabulary": vocabulary, "story": story}
    run["sentences"] = {**sentences_of_views(), **(in_chinese or {})}
    data = json.dumps(run, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n</head>'
    ends = [f'<script type="application/json" id="recording">{data}</script>']
    ends += [f"<script>{script}</script>" for script in scripts]
    document = _LOADED.sub("", page_file(DOCUMENT))
    return document.replace("</head>", head).replace("</body>", "\n".join([*ends, "</body>"]))


def _source_of(text: str) -> str:
    """Return the hash-source of an inline script or style (CSP level 3)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
