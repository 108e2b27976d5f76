"""Tasks on all cores give their results in order, and none outlives the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import active_children
from pathlib import Path

import pytest

from newsstand.errors import BadOption
from newsstand.lab.cores import in_processes, on_all_cores


def test_results_are_in_order_of_tasks() -> None:
    def late_if_even(number: int) -> int:
        time.sleep(0.01 * (number % 2 == 0))
        return number * number

    assert list(on_all_cores(late_if_even, range(20))) == [number * number for number in range(20)]
    assert list(on_all_cores(late_if_even, [])) == []


def test_tasks_not_begun_after_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    begun = []

    def run(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise ValueError("two")
        if number > 2:
            released.wait(10)

    released = threading.Event()
    with pytest.raises(ValueError, match="two"):
        list(on_all_cores(run, range(100)))
    released.set()
    time.sleep(0.05)
    assert begun in ([0, 1, 2], [0, 1, 2, 3])


def test_process_ends_while_task_runs() -> None:
    code = (
        "import time\nfrom newsstand.lab.cores import on_all_cores\n"
        "for _ in on_all_cores(time.sleep, [0, 600]):\n    raise SystemExit(7)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 7


# Processes


def quotient(dividend: int, divisor: int) -> tuple[float, int]:
    """Divide, and name the process."""
    if divisor == 0:
        raise BadOption("must not be 0", divisor=divisor)
    return dividend / divisor, os.getpid()


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_give_results_in_order_of_tasks(processes: int) -> None:
    with in_processes(quotient, 12, processes) as run:
        found = [*run([1, 2, 3]), *run([4])]
    assert [result for result, _ in found] == [12, 6, 4, 3]
    assert (os.getpid() in {process for _, process in found}) is (processes == 1)
    assert not active_children()


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_end_after_error(processes: int) -> None:
    with pytest.raises(BadOption, match="divisor 0: must not be 0"), in_processes(quotient, 12, processes) as run:
        list(run([0, *range(1, 50)]))
    assert not active_children()


SLEEPING = """
import signal, sys
from newsstand.lab.cores import in_processes
if __name__ == "__main__":
    try:
        with in_processes(max, 600, 2) as first:  # both have started
            list(first([1, 2]))
            print("started", flush=True)
            with in_processes(signal.sigtimedwait, [], 2) as waiting:
                list(waiting([600, 600]))
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_command(tmp_path: Path, number: signal.Signals) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    running = subprocess.Popen(
        [sys.executable, "-c", SLEEPING],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "started\n"
    time.sleep(0.5)
    (os.killpg if number == signal.SIGINT else os.kill)(running.pid, number)
    out, err = running.communicate(timeout=60)  # until no process has the pipes open any more
    assert out == ""
    if number == signal.SIGINT:
        assert (running.returncode, err) == (130, "")
        assert not list(tmp_path.iterdir())
