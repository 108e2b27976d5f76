"""What is computed for the figures of survival2011: a simulation or a model, of one setting."""

from __future__ import annotations

from dataclasses import dataclass

from newsstand.lab.survival import QUANTILES, MessageClass, Simulation, replicated
from newsstand.survival.methods import solve
from newsstand.survival.setting import Setting

SIMULATE, EXACT, REDUCED, BALANCED = "simulate", "exact", "reduced", "balanced"
SEED = 2011
QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Task:
    """One simulation, or one model that is solved."""

    setting: Setting
    method: str
    observations: int = 0
    """Of a simulation, in all replications together."""
    replications: int = 1
    classes: tuple[MessageClass, ...] = ()
    spread: bool = False
    """Whether deviation and quartiles of a model are wanted, which take many more solutions than the mean."""


@dataclass(frozen=True)
class Row:
    """What a task came to: a number for each replication; a model has one."""

    task: Task
    mst: tuple[float, ...]
    """Simulated by Little's law."""
    p_loss: tuple[float, ...]
    sd: tuple[float, ...] = ()
    quartiles: tuple[tuple[float, ...], ...] = ()
    """Low, middle and high, each with a number for each replication."""
    class_mst: tuple[tuple[float, ...], ...] = ()
    copy_rate: tuple[float, ...] = ()
    mean_time: tuple[float, ...] = ()
    """Simulated: the mean of the times. Little's law would say nothing of one broker, whose cache is full."""


def done(task: Task) -> Row:
    """Do a task."""
    return _simulated(task) if task.method == SIMULATE else _solved(task)


def _simulated(task: Task) -> Row:
    simulation = Simulation(task.setting, task.observations, task.replications, SEED, task.classes)
    found = [replicated(simulation, number) for number in range(task.replications)]
    return Row(
        task,
        mst=tuple(one.mst for one in found),
        p_loss=tuple(one.p_loss for one in found),
        sd=tuple(one.sd for one in found),
        quartiles=tuple(tuple(one.quantiles[QUANTILES.index(level)] for one in found) for level in QUARTILES),
        class_mst=tuple(zip(*(one.class_mst for one in found), strict=True)) if task.classes else (),
        copy_rate=tuple(one.copy_rate for one in found),
        mean_time=tuple(one.mean_time for one in found),
    )


def _solved(task: Task) -> Row:
    lifetime = solve(task.setting, task.method)
    if not task.spread:
        return Row(task, (lifetime.mst,), (lifetime.p_loss,))
    quartiles = tuple((lifetime.quantile(level),) for level in QUARTILES)
    return Row(task, (lifetime.mst,), (lifetime.p_loss,), (lifetime.sd,), quartiles)
