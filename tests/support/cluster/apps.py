"""App folders of several tests."""

from __future__ import annotations

EMERGENCIES = """
[datasets.emergencies]
fields = {id = "string", kind = "string"}

[datasets.shelters]
fields = {name = "string"}
key = "name"

[channels.by_kind]
query = "SELECT e.id FROM emergencies e WHERE e.kind = :kind"
new = "emergencies"
parameters = {kind = "string"}
"""
