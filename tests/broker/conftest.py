from __future__ import annotations

from support.broker.fixtures import broker_url, press

__all__ = ["broker_url", "press"]
