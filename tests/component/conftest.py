"""What tests of several rooms need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import LogCapture


@pytest.fixture
def log() -> Iterator[LogCapture]:
    """What is logged during the test."""
    capture, before = LogCapture(), structlog.get_config()
    structlog.configure(processors=[capture], cache_logger_on_first_use=False)
    yield capture
    structlog.configure(**before)
