"""Lines of the broker's log: one for each record, with any text of a client's in it.

A line feed in a principal, a client id or a topic's name would begin a line that looks like one of the broker's own, in
the audit log too. So control characters and line separators of a message appear as escapes; the lines of a traceback
are indented behind its message.
"""

from __future__ import annotations

import logging
import re

FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
_ODD = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_INDENT = "    "


class OneLine(logging.Formatter):
    """Formats records as lines; see the module."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return a record's line, with line ends in the message escaped."""
        record.message = _ODD.sub(_escaped, record.message)
        return super().formatMessage(record)

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802 - likewise
        """Return a traceback, indented: the text of its exception may be a client's."""
        return "\n".join(_INDENT + line for line in super().formatException(ei).splitlines())


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
