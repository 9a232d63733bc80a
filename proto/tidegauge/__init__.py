"""Facts that all components of Tidegauge share: wire messages, errors, znodes, settings, the batch header."""

from tidegauge import machine_code as _machine_code  # noqa: F401 - before any module that may be compiled

__version__ = "0.1.0"
