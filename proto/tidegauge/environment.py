"""Settings from environment variables, with the names of Kafka's container images.

``KAFKA_BROKER_ID`` is ``broker.id``: after the prefix ``_`` stands for ``.``, ``__`` for ``_`` and ``___`` for ``-``.
Variables that Kafka's start scripts read are not settings.
Source: the configuration of the image apache/kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIX = "KAFKA_"
NO_SETTINGS = frozenset(
    {
        "KAFKA_CLUSTERS_IDS", "KAFKA_DEBUG", "KAFKA_GC_LOG_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_HOME", "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS", "KAFKA_JMX_PORT", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_LOG4J_LOGGERS", "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_OPTS", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_VERSION",
    }
)  # fmt: skip
_UNDERSCORES = re.compile("_{1,3}")
_MEANING = {1: ".", 2: "_", 3: "-"}


def settings_of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings among the variables, with Kafka's names."""
    return {
        setting_name(name): value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX) and len(name) > len(PREFIX) and name not in NO_SETTINGS
    }


def setting_name(variable: str) -> str:
    """Return the setting that a variable stands for: ``log.dirs`` for ``KAFKA_LOG_DIRS``."""
    return _UNDERSCORES.sub(lambda found: _MEANING[len(found[0])], variable.removeprefix(PREFIX).lower())
