"""Whether ApiVersions names the client's software as it must from version 3 on (``ApiVersionsRequest.isValid``)."""

from __future__ import annotations

import re
from typing import Any

from tidegauge.kafka.frames import RequestHeader

_NAMES_FROM = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def is_valid(header: RequestHeader, request: Any) -> bool:
    """Return whether a request names the client's software properly.

    Args:
        header: its header.
        request: the ``ApiVersionsRequest`` of a broker's or of a controller's protocol.
    """
    names = (request.client_software_name, request.client_software_version)
    return header.version < _NAMES_FROM or all(map(_SOFTWARE.fullmatch, names))
