"""The cluster as a fixture: whatever the last test left behind is undone before each test."""

import pytest
from steering import Control


@pytest.fixture
def cluster() -> Control:
    """Return the control interface at ``TIDEGAUGE_CONTROL``, after a reset."""
    control = Control()
    control.reset()
    return control
