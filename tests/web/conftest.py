from __future__ import annotations

import pytest
from support.web.chromium import CHROMIUM


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where there is no browser, say so in one line."""
    if CHROMIUM is None and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line(
            "The dashboard's page was not tested: there is no chromium here (Debian: apt-get install chromium)."
        )
