from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make a certificate of one authority for a name: NAME.pem, which has the authority's, too, and NAME.key."""
    folder = tmp_path_factory.mktemp("certificates")
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")

    def make(name: str) -> Path:
        file, of_authority = folder / f"{name}.pem", folder / "authority.pem"
        by = ("-CA", of_authority, "-CAkey", folder / "authority.key", "-addext", "basicConstraints=CA:FALSE")
        words = (*new, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", file)
        if not of_authority.exists():
            subprocess.run(
                [*new, "-subj", "/CN=a", "-keyout", folder / "authority.key", "-out", of_authority],
                check=True,
                capture_output=True,
            )
        names = ("-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1")
        subprocess.run([*words, *by, *names], check=True, capture_output=True)
        file.write_text(file.read_text() + of_authority.read_text())
        return file

    return make
