"""Takes the place of tests/conftest.py in aiokafka's sources: the broker at OUTSIDE_BROKER, and no Docker.

It gives the fixtures by the names, and the attributes of a test class, that aiokafka's tests ask for.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

sys.modules.setdefault("docker", ModuleType("docker"))  # aiokafka's helpers import it, for its ACL tests
sys.modules.setdefault("docker.models", ModuleType("docker.models"))
sys.modules.setdefault("docker.models.containers", ModuleType("docker.models.containers"))
CERTIFICATES = "ssl_" + "folder"  # aiokafka's name
HOST, _, PORT = os.environ["OUTSIDE_BROKER"].partition(":")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--docker-image", default=None)


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield the event loop of a class of tests."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    if not made.is_closed():
        made.run_until_complete(asyncio.sleep(0))
        made.close()
    asyncio.set_event_loop(None)
    gc.collect()


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    """Give a class that needs no broker what it looks for."""
    request.cls.loop = loop
    setattr(request.cls, CERTIFICATES, None)


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    """Give a class the broker; there are no listeners for TLS and SASL."""
    request.cls.loop = loop
    request.cls.kafka_host, request.cls.kafka_port = HOST, int(PORT)
    request.cls.hosts = [f"{HOST}:{PORT}"]
    request.cls.kafka_version = os.environ["KAFKA_VERSION"]
    for listener in ("kafka_ssl_port", "kafka_sasl_plain_port", "kafka_sasl_ssl_port"):
        setattr(request.cls, listener, 1)
    for absent in (CERTIFICATES, "acl_manager", "kerberos_utils", "kafka_config"):
        setattr(request.cls, absent, None)
