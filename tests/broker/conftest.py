from __future__ import annotations

from support.broker.fixtures import broker_url, new_press, press

__all__ = ["broker_url", "new_press", "press"]
