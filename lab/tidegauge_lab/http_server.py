"""Common parts of the lab's two HTTP servers, the console's and the control interface's."""

from __future__ import annotations

from types import FrameType

import uvicorn


class HttpServer(uvicorn.Server):
    """Ends in order, however often it is asked to."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take the first signal alone: a second Ctrl-C would skip the rest of the shutdown, with a traceback."""
        if not self.should_exit:
            super().handle_exit(sig, frame)
