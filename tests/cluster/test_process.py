"""The process of a cluster with Spark: limits of its server, and permissions of its files."""

from __future__ import annotations

from pathlib import Path

from support.cluster.process import running
from support.server_limits import CONNECTIONS, require_limits

APP = f"""
[cluster]
max_connections_per_address = {CONNECTIONS}

[datasets.reports]
fields = {{ id = "string" }}
"""


def test_cluster_limits_heads_and_connections_and_keeps_files_private(tmp_path: Path) -> None:
    (tmp_path / "newsstand.toml").write_text(APP)
    data = tmp_path / "data"
    with running(tmp_path, data) as cluster:
        require_limits(cluster.url)
        cluster.client.post("/datasets/reports/publications", json={"id": "first"}).raise_for_status()
        for path in (data, *data.rglob("*")):
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
