from __future__ import annotations

from support.broker.fixtures import press

__all__ = ["press"]
