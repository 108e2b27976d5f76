"""Ctrl-C during work on Spark."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
from pyspark.sql import SparkSession

from newsstand.spark import run_cancellable


def test_ctrl_c_confirmed_before_tasks_have_ended(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    context = spark.sparkContext
    said: list[str] = []
    module = sys.modules[run_cancellable.__module__]  # the package has the function by that name
    cancel = module.cancel_group

    def noting(*given: object) -> None:
        said.append(capsys.readouterr().err)
        cancel(*given)

    def press() -> None:
        while not context.statusTracker().getActiveStageIds():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(module, "cancel_group", noting)
    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        run_cancellable(spark, lambda: context.parallelize([600], 1).map(time.sleep).collect())
    pressing.join()
    assert said == ["newsstand: stopping, once Spark's tasks have ended\n"]
    assert not context.statusTracker().getActiveStageIds()


def test_failure_prints_no_message_about_stopping(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_cancellable(spark, fail)
    assert capsys.readouterr().err == ""
