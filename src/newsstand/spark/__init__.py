"""The one place that makes a Spark session."""

from newsstand.spark.session import open_session, settings

__all__ = ["open_session", "settings"]
