"""CONTRIBUTING.md is up to date."""

from __future__ import annotations

from import_rules import current_table, table


def test_contributing_has_table_of_components() -> None:
    assert current_table() == table(), "run: python tests/import_rules.py"
