"""The one place that makes a Spark session."""

from newsstand.spark.session import open_session, settings
from newsstand.spark.stoppable import stoppable

__all__ = ["open_session", "settings", "stoppable"]
