"""`newsstand channel`: list the channels of an app, try them on recorded publications, explain their costs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast
from urllib.parse import quote

from typer import Argument, Option

from newsstand.cli.data.connection import (
    AppFolder,
    ClusterOptions,
    NoAnswer,
    located_app,
    request_json,
    request_list,
)
from newsstand.cli.data.publish import batches
from newsstand.cli.options import Commands, DataFolder, Json, SparkOptions
from newsstand.cli.terminal import print_table, say
from newsstand.errors import BadInput, BadOption

if TYPE_CHECKING:
    from newsstand.cluster.app_folder import App
    from newsstand.model import ChannelDefinition, Dataset, JsonObject, Scalar, Values

app = Commands(help="Look at channels, and try them.")

Name = Annotated[str, Argument(metavar="CHANNEL", help="The channel.")]
MOST_SETS = 50
"""Sets of values that are listed; all are counted."""


@app.command("list")
def list_(folder: AppFolder, as_json: Json = False) -> None:
    """List the channels that an app declares.

    Example: newsstand channel list my-app
    """
    from newsstand.cluster.app_folder import read_app
    from newsstand.cluster.query.parser import channel_table

    channels = read_app(folder).channels
    if as_json:
        print(json.dumps([{"name": name, **channel_table(one)} for name, one in channels.items()]))
        return
    for name, one in channels.items():
        parameters = ", ".join(f"{parameter.name} {parameter.type}" for parameter in one.parameters)
        when = "continuous" if one.period_s is None else f"every {one.period_s:g} s"
        print(f"{name}({parameters}) on {one.new}, {when}, {one.delivery}")


@app.command("try")
def try_(
    spark: SparkOptions,
    folder: AppFolder,
    channel: Name,
    value: Annotated[
        list[str] | None, "NAME=TEXT", "The value of one parameter; repeat it for the others."
    ] = None,
    values: Annotated[list[str] | None, "JSON", 'A whole set, {"kind": "flood"}; repeat it for more sets.'] = None,
    first: Annotated[
        int, Option("--from", min=1, metavar="N", help="The number of the first publication to take.")
    ] = 1,
    until: Annotated[
        int | None, Option(min=1, metavar="N", help="The number of the last; the newest if not set.")
    ] = None,
    file: Annotated[Path | None, "FILE", "Take the records of a file (NDJSON or JSON) for new ones."] = None,
    data: DataFolder = None,
    as_json: Json = False,
) -> None:
    """Try a channel on recorded publications: nothing is stored, and no cluster is needed.

    Example: newsstand channel try my-app alerts --value kind=flood
    """
    from newsstand.cluster.offline import open_folder, temporary_log
    from newsstand.spark.session import cluster_settings

    known = _read_app(folder, data)
    if until is not None and until < first:
        raise BadOption(f"--until {until}: must not be before --from {first}")
    with ExitStack() as stack:
        opened = stack.enter_context(open_folder(known, known.data))
        wanted = opened.catalog.channel(channel)
        sets = _sets(wanted, value or (), values or ())
        rejected: list[str] = []
        new = None
        if file is not None:
            dataset = opened.catalog.dataset(wanted.new)
            records = _valid_records(file, dataset, known.cluster.max_page_bytes, rejected.append)
            new = stack.enter_context(temporary_log(wanted.new, records, time.time_ns() // 1_000_000))
            _require_records(file, new.head(wanted.new), rejected)
        else:
            opened.require_publications(wanted.new)
        kind = cluster_settings(known.spark)
        session = stack.enter_context(spark.session("channel try", "trying", kind=kind))
        facts = opened.try_channel(session, wanted, sets, first - 1, until, new)
    for line in rejected:
        say(line)
    if as_json:
        print(json.dumps({**facts, "rejected": len(rejected)}))
    else:
        _show_trial(facts, wanted)


@app.command("explain")
def explain(
    cluster: ClusterOptions,
    spark: SparkOptions,
    folder: AppFolder,
    channel: Name,
    data: DataFolder = None,
    as_json: Json = False,
) -> None:
    """Print what a channel costs and which channels share its reads, from the cluster or its data folder.

    Example: newsstand channel explain my-app alerts
    """
    known = _read_app(folder, data)
    facts = _explained_by_cluster(known, channel, cluster)
    if facts is None:
        facts = _explained_here(known, channel, spark)
    if as_json:
        print(json.dumps(facts))
    else:
        _show_explanation(facts)


@app.command("suspended")
def suspended(
    cluster: ClusterOptions,
    folder: AppFolder,
    channel: Name,
    resume: Annotated[bool, "Resume them all, from the next publications on."] = False,
    as_json: Json = False,
) -> None:
    """List the suspended values of a running channel, on which its query fails, or resume them.

    Example: newsstand channel suspended my-app alerts
    """
    path = f"/channels/{quote(channel, safe='')}/suspensions"
    facts: JsonObject
    with cluster.connect(located_app(folder)) as client:
        if resume:
            facts = request_json(client, "DELETE", path)
        else:
            suspensions = request_list(client, path, "suspensions")
            facts = {"suspensions": suspensions}
    if as_json:
        print(json.dumps(facts))
    elif resume:
        print(f"{channel}: {facts['resumed']} resumed")
    else:
        for one in suspensions:
            print(f"{json.dumps(one['values'])}, {one['subscriptions']} subscriptions: {one['error']}")
        print(f"{channel}: {len(suspensions)} suspended")


@app.command("running")
def running(cluster: ClusterOptions, folder: AppFolder, as_json: Json = False) -> None:
    """List the executions of channels that are running now, and how long they have taken so far.

    Example: newsstand channel running my-app
    """
    with cluster.connect(located_app(folder)) as client:
        executions = request_list(client, "/executions", "executions")
    if as_json:
        print(json.dumps({"executions": executions}))
    elif executions:
        names = ("channel", "dataset", "phase", "after", "through", "publications", "seconds")
        rows = [(*(_cell(one[name]) for name in names), "slow" if one["slow"] else "") for one in executions]
        print_table((*names, ""), rows, left=("channel", "dataset", "phase", ""))
    else:
        print("no execution is running")


def _cell(fact: str | float | None) -> str:
    """Return the text of a cell: numbers of publications as they are, seconds with one decimal place."""
    return "" if fact is None else f"{fact:.1f}" if isinstance(fact, float) else str(fact)


def _read_app(folder: Path, data: Path | None) -> App:
    known = located_app(folder)
    return known if data is None else known.with_data(data.absolute())


def _sets(channel: ChannelDefinition, single: Sequence[str], complete: Sequence[str]) -> list[Values]:
    """Return the requested sets of values; a channel without parameters needs none."""
    from newsstand.model import parse_values

    given = [_json_values(text) for text in complete]
    if single or not complete:
        given.append(_named_values(channel, single))
    return list(dict.fromkeys(parse_values(channel, one) for one in given))


def _json_values(text: str) -> Mapping[str, Scalar] | Sequence[Scalar]:
    try:
        given: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOption(f"--values {text[:80]}: is not JSON ({error})") from error
    if not isinstance(given, dict | list):
        raise BadOption(f'--values {text[:80]}: give an object such as {{"name": value}}, or a list of values')
    return given


def _named_values(channel: ChannelDefinition, texts: Sequence[str]) -> dict[str, Scalar]:
    types = {one.name: one.type for one in channel.parameters}
    named: dict[str, Scalar] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadOption(f"--value {text[:80]}: must have the form name=value")
        if name in named:
            raise BadOption(f"--value {text[:80]}: '{name}' is given twice; use --values for several sets")
        named[name] = _of_type(value, types.get(name, "string"))
    return named


def _of_type(text: str, kind: str) -> Scalar:
    """Return a text as a value of a type; a text that is none is returned itself, to be rejected later."""
    readers: dict[str, Callable[[str], Scalar]] = {"integer": int, "double": float}
    try:
        if kind == "boolean":
            return {"true": True, "false": False}.get(text.lower(), text)
        return readers.get(kind, str)(text)
    except ValueError:
        return text


def _valid_records(
    file: Path, dataset: Dataset, max_page_bytes: int, reject: Callable[[str], None]
) -> Iterator[list[bytes]]:
    """Yield the lines of valid records of a file; `reject` is called with an error for each of the others."""
    from newsstand.cluster.ingest.validator import RecordValidator

    if not file.is_file():
        raise BadInput(f"{file}: {'not a file' if file.exists() else 'no such file'}")
    validator = RecordValidator(dataset, max_page_bytes)
    for batch in batches(str(file), 5000):
        records = validator.validate(batch.body, "json" if batch.form == "json" else "ndjson")
        for one in records.rejected:
            reject(f"{file}:{batch.numbers[one.index]}: {' '.join(one.reason.split())}")
        yield records.lines


def _require_records(file: Path, count: int, rejected: Sequence[str]) -> None:
    if not count:
        why = f"all {len(rejected)} records were rejected; {rejected[0]}" if rejected else "has no records"
        raise BadInput(f"{file}: {why}")


def _explained_by_cluster(known: App, channel: str, cluster: ClusterOptions) -> JsonObject | None:
    """Return the explanation of the running cluster; None if none runs."""
    from newsstand.cluster.app_folder import ADDRESS

    if cluster.url is None and not (known.data / ADDRESS).is_file():
        return None
    with cluster.connect(known) as client:
        try:
            return request_json(client, "GET", f"/channels/{quote(channel, safe='')}/explain")
        except NoAnswer:
            if cluster.url is not None:
                raise
            say(f"note: {client.base_url} does not answer; explained from the data folder")
            return None


def _explained_here(known: App, channel: str, spark: SparkOptions) -> JsonObject:
    from newsstand.cluster.offline import open_folder
    from newsstand.spark.session import cluster_settings

    with open_folder(known, known.data) as opened:
        opened.catalog.channel(channel)
        with spark.session("channel explain", "explaining", kind=cluster_settings(known.spark)) as session:
            return opened.explain(session, channel)


def _show_trial(facts: JsonObject, channel: ChannelDefinition) -> None:
    """Print how many results each set of values gets, and the first ones."""
    names = [one.name for one in channel.parameters]
    sets = cast("Sequence[Mapping[str, Sequence[object]]]", facts["by_values"])
    rows = [(*map(str, one["values"]), f"{one['results']:,}") for one in sets[:MOST_SETS]]
    print_table((*names, "results"), rows, left=names)
    if len(sets) > MOST_SETS:
        print(f"… and {len(sets) - MOST_SETS:,} more sets of values")
    sample = cast("Sequence[Mapping[str, object]]", facts["sample"])
    if sample:
        print(f"\nThe first ones ({', '.join(cast('Mapping[str, str]', facts['output']))}):")
    for result in sample:
        values = ", ".join(map(str, cast("Sequence[object]", result["values"])))
        origin = "" if result["publication"] is None else f" from {result['publication']}"
        payload = json.dumps(result["payload"], ensure_ascii=False)
        print(f"{values}{origin}: {payload}" if values or origin else payload)
    done = f"{facts['results']:,} results of {facts['publications']:,} publications in {facts['seconds']:.2f} s"
    print(f"\n{channel.name}: {done}")


def _show_explanation(facts: JsonObject) -> None:
    """Print what a channel costs, warnings first."""
    plan = cast("Mapping[str, Sequence[Mapping[str, object]]]", facts["plan"])
    for warning in plan["warnings"]:
        print(f"WARNING: {warning}")
    shared = ", ".join(cast("Sequence[str]", facts["runs_with"])) or "no other channel"
    print(f"{facts['channel']}: {facts['subscriptions']:,} subscriptions share {facts['streams']:,} streams")
    print(f"reads new publications together with: {shared}")
    for join in plan["joins"]:
        keys = ", ".join(map(_key, cast("Sequence[str]", join["keys"]))) or "no key"
        print(f"join by {keys}{' with the subscriptions' if join['values'] else ''} ({join['kind']})")
    recent = cast("Mapping[str, float]", facts["recent"])
    last = f"the last {recent['publications']:,} publications"
    if "error" in recent:
        print(f"fails on {last}: {recent['error']}")
        return
    found = f"{recent['results']:,} results in {recent['streams']:,} streams"
    print(f"of {last}: {found}, computed in {recent['seconds']:.2f} s")
    if facts.get("last_seconds"):
        print(f"the last execution took {facts['last_seconds']:.2f} s")


def _key(name: str) -> str:
    """Return the name of a join key; keys that stand for a distance have generated names."""
    return "place" if name.startswith("__") else name
