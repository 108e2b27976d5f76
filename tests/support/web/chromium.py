"""Where the browser is, and how it is started: without a sandbox (tests may be root) and without calls home."""

from __future__ import annotations

import shutil

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
