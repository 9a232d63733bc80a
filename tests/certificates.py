"""Certificates for one test run, made on the fly with the openssl program: nothing that expires lies in the tree."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Identity(NamedTuple):
    """A certificate and its key, in files of their own and together."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Issues certificates into a directory."""

    def __init__(self, directory: Path, name: str) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the openssl program makes the certificates, and it is not installed")
        self._directory = directory
        self._name = name
        self._key = directory / f"authority-{name}.key"
        self.certificate = directory / f"authority-{name}.pem"
        _openssl(
            "req", "-x509", *_NEW_KEY, "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", str(self._key),
            "-out", str(self.certificate), "-addext", "basicConstraints=critical,CA:TRUE",
        )  # fmt: skip

    def issue(
        self,
        name: str,
        subject_alternative_name: str = "IP:127.0.0.1,DNS:localhost",
        *,
        days: int = 2,
        subject: str | None = None,
    ) -> Identity:
        """A certificate for ``/CN=name`` or another subject; with negative ``days`` it has expired already."""
        key, request, certificate, both, extension = (
            self._directory / f"{name}.{end}" for end in ("key", "csr", "pem", "both.pem", "ext")
        )
        extension.write_text(f"subjectAltName={subject_alternative_name}\n")
        _openssl(
            "req", *_NEW_KEY, "-nodes", "-subj", subject or f"/CN={name}", "-keyout", str(key), "-out", str(request)
        )
        _openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key),
            "-CAcreateserial", "-days", str(days), "-extfile", str(extension), "-out", str(certificate),
        )  # fmt: skip
        both.write_text(key.read_text() + certificate.read_text())
        return Identity(certificate, key, both)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
