"""Spark: sessions, cancellation, errors, and the private interfaces that Newsstand depends on."""

from newsstand.spark.cancellation import run_cancellable
from newsstand.spark.session import open_session, settings

__all__ = ["open_session", "run_cancellable", "settings"]
