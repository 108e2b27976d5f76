"""`newsstand log`: verify the ingest log of a cluster, and repair it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from newsstand.cli.options import Commands, DataFolder, Json
from newsstand.cli.terminal import advancing, say

if TYPE_CHECKING:
    from newsstand.cluster.log.files.repair import LostKey, RepairJournal
    from newsstand.cluster.log.files.verification import Examination
    from newsstand.cluster.log.maintenance import LogFolder

app = Commands(help="Verify the ingest log, and repair it.")

Place = Annotated[Path, Argument(metavar="APP_OR_DATA", help="The app folder, or its data folder.")]
Dataset = Annotated[str | None, Option("--dataset", metavar="NAME", help="One dataset only.")]
MOST_SHOWN = 20
"""Lines of each kind that are shown of a dataset; --json and the report have all."""


@app.command("verify")
def verify(place: Place, dataset: Dataset = None, data: DataFolder = None, as_json: Json = False) -> None:
    """Read all of the log and verify every checksum; exit with 1 if something is damaged or missing.

    A cluster may run meanwhile. Nothing is changed.

    Example: newsstand log verify my-app
    """
    from newsstand.cluster.log.maintenance import find_log, verify_log

    folder = find_log(place, data)
    with advancing("verifying") as progress:
        verified = verify_log(folder, dataset, progress)
    if as_json:
        print(json.dumps(_verified_facts(folder, verified)))
    else:
        _show_verified(folder, verified)
    if not all(one.valid for one in verified):
        raise typer.Exit(1)


@app.command("repair")
def repair(
    place: Place,
    dataset: Dataset = None,
    dry_run: Annotated[bool, "Print what would be done, and change nothing."] = False,
    data: DataFolder = None,
    as_json: Json = False,
) -> None:
    """Repair the log of a cluster that is stopped: keep all sound records, and list those that are lost.

    Records keep their numbers, and no number is given twice. The log as it was is kept beside it.

    Example: newsstand log repair my-app
    """
    import msgspec

    from newsstand.cluster.log.files.repair import report_path
    from newsstand.cluster.log.maintenance import find_log, repair_log

    folder = find_log(place, data)
    with advancing("verifying") as progress:
        done = repair_log(folder, dataset, progress, dry_run=dry_run)
    if as_json:
        print(json.dumps({"data": str(folder.data), "dry_run": dry_run, "repaired": msgspec.to_builtins(done)}))
        return
    for one in done:
        _show_repaired(one)
        if not dry_run:
            print(f"  the log as it was: {one.copy}; this report: {report_path(one)}")
    if not done:
        print(f"{folder.log}: nothing to repair")
    elif dry_run:
        say("Nothing was changed; without --dry-run it is.")


def _verified_facts(folder: LogFolder, verified: Sequence[Examination]) -> dict[str, object]:
    return {
        "data": str(folder.data),
        "sound": all(one.valid for one in verified),
        "datasets": [
            {
                "dataset": one.dataset,
                "records": sum(run.last - run.first + 1 for run in one.runs),
                "end": one.end,
                "faults": [
                    {"file": str(fault.path), "begin": fault.begin, "end": fault.end, "what": fault.what}
                    | {"first": fault.first or None, "last": fault.last or None}
                    for fault in one.faults
                ],
                "beyond": [{"by": seen.by, "position": seen.seq} for seen in one.beyond],
                "lost_before": [{"first": gap.first, "last": gap.last} for gap in one.gaps],
            }
            for one in verified
        ],
    }


def _show_verified(folder: LogFolder, verified: Sequence[Examination]) -> None:
    for one in verified:
        records = sum(run.last - run.first + 1 for run in one.runs)
        print(f"{one.dataset}: {records} records up to {one.end}, {'sound' if one.valid else 'DAMAGED'}")
        lines = []
        for fault in one.faults:
            last = fault.end - 1
            where = f"byte {fault.begin}" if last < fault.begin else f"bytes {fault.begin} to {last}"
            affected = f" ({_numbers(fault.first, fault.last)})" if fault.first else ""
            lines.append(f"{fault.path}, {where}: {fault.what}{affected}")
        lines += [f"{seen.by} has been executed up to {seen.seq}" for seen in one.beyond]
        _show(lines)
        _show([f"{_numbers(gap.first, gap.last)}: given up by an earlier repair" for gap in one.gaps])
    if not all(one.valid for one in verified):
        from newsstand.cluster.log.files.segments import repair_command

        say(repair_command(folder.data))


def _show_repaired(one: RepairJournal) -> None:
    count = sum(lost.last - lost.first + 1 for lost in one.lost)
    print(f"{one.dataset}: {count or 'no'} record{'s' * (count != 1)} lost, the next one is {one.next}")
    _show([f"{_numbers(lost.first, lost.last)}: {lost.why}" for lost in one.lost])
    if one.reserved is not None:
        _show([f"{_numbers(one.reserved.first, one.reserved.last)}: left out, {one.reserved.why}"])
    _show([_key_line(key) for key in one.keys])


def _key_line(key: LostKey) -> str:
    numbers = _numbers(key.first, key.last)
    if key.key is None:
        return f"{numbers}: a part of an append; its idempotency key, if any, is lost, a repetition adds them"
    whose = f" of {key.publisher}" if key.publisher else ""
    state = "still known, a repetition adds nothing" if key.remembered else "lost, a repetition adds the records"
    sure = "" if key.certain else " (read from a damaged line, perhaps wrongly)"
    return f"key {key.key!r}{whose}{sure}, {numbers}: {state}"


def _show(lines: Sequence[str]) -> None:
    for line in lines[:MOST_SHOWN]:
        print(f"  {line}")
    if len(lines) > MOST_SHOWN:
        print(f"  and {len(lines) - MOST_SHOWN} more; see --json")


def _numbers(first: int, last: int) -> str:
    return f"record {first}" if first == last else f"records {first} to {last}"
