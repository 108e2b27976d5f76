"""Work of Spark's that Ctrl-C stops."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
from pyspark.sql import SparkSession

from newsstand.spark import stoppable


def test_who_presses_ctrl_c_is_told_before_tasks_have_ended(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    context = spark.sparkContext
    said: list[str] = []
    module = sys.modules[stoppable.__module__]  # the package has the function by that name
    cancel = module._cancel

    def noting(*given: object) -> None:
        said.append(capsys.readouterr().err)
        cancel(*given)

    def press() -> None:
        while not context.statusTracker().getActiveStageIds():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(module, "_cancel", noting)
    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        stoppable(spark, lambda: context.parallelize([600], 1).map(time.sleep).collect())
    pressing.join()
    assert said == ["newsstand: stopping, once Spark's tasks have ended\n"]
    assert not context.statusTracker().getActiveStageIds()


def test_what_fails_says_nothing_of_stopping(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        stoppable(spark, fail)
    assert capsys.readouterr().err == ""
