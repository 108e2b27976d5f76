"""`newsstand channel`: look at the channels of an app, try them on what is recorded, ask what they cost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.channel_report import show_explanation, show_trial
from newsstand.cli.options import Conf, Json, Master
from newsstand.cli.progress import progress, say
from newsstand.cli.publish import AppFolder, TokenFile, Url, batches, error_of, located_app, open_client
from newsstand.errors import BadInput, BadOption

if TYPE_CHECKING:
    import httpx

    from newsstand.cluster.app_folder import App
    from newsstand.cluster.facade import Facts
    from newsstand.model import Channel, Dataset, Scalar, Values

app = typer.Typer(help="Look at channels, and try them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel.")]
Data = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="The data folder, if not the app's.")]


@app.command("list")
def list_(folder: AppFolder, as_json: Json = False) -> None:
    """List the channels that an app declares.

    Example: newsstand channel list my-app
    """
    from newsstand.cluster.app_folder import read_app
    from newsstand.cluster.channels import channel_table

    channels = read_app(folder).channels
    if as_json:
        print(json.dumps([{"name": name, **channel_table(one)} for name, one in channels.items()]))
        return
    for name, one in channels.items():
        parameters = ", ".join(f"{parameter.name} {parameter.type}" for parameter in one.parameters)
        when = "continuous" if one.period_s is None else f"every {one.period_s:g} s"
        print(f"{name}({parameters}) on {one.new}, {when}, {'push' if one.push else 'pull'}")


@app.command("try")
def try_(
    folder: AppFolder,
    channel: Name,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", metavar="NAME=TEXT", help="The value of one parameter; repeat it for the others."),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("--values", metavar="JSON", help='A whole set, {"kind": "flood"}; repeat it for more sets.'),
    ] = None,
    first: Annotated[
        int, typer.Option("--from", min=1, metavar="N", help="The number of the first publication to take.")
    ] = 1,
    until: Annotated[
        int | None,
        typer.Option("--until", min=1, metavar="N", help="The number of the last; the newest if not set."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Take the records of a file (NDJSON or JSON) for new ones."),
    ] = None,
    data: Data = None,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Try a channel on recorded publications: nothing is stored, and no cluster is needed.

    Example: newsstand channel try my-app alerts --value kind=flood
    """
    from newsstand.cluster.data_folder import open_folder, passing_log
    from newsstand.cluster.spark_settings import cluster_settings
    from newsstand.spark import open_session

    known = _read_app(folder, data)
    if until is not None and until < first:
        raise BadOption(f"--until {until}: is before --from {first}")
    with ExitStack() as stack:
        opened = stack.enter_context(open_folder(known, known.data))
        wanted = opened.catalog.channel(channel)
        sets = _sets(wanted, value or (), values or ())
        refused: list[str] = []
        new = None
        if file is not None:
            dataset = opened.catalog.dataset(wanted.new)
            admitted = _admitted(file, dataset, known.cluster.max_page_bytes, refused.append)
            new = stack.enter_context(passing_log(wanted.new, admitted, time.time_ns() // 1_000_000))
            _require_admitted(file, new.head(wanted.new), refused)
        else:
            opened.require_publications(wanted.new)
        kind = cluster_settings(known.spark)
        spark = stack.enter_context(
            open_session(master, conf or (), "newsstand channel try", brief=True, kind=kind)
        )
        stack.enter_context(progress(spark, "trying"))
        facts = opened.try_channel(spark, wanted, sets, first - 1, until, new)
    for line in refused:
        say(line)
    if as_json:
        print(json.dumps({**facts, "refused": len(refused)}))
    else:
        show_trial(facts, wanted)


@app.command("explain")
def explain(
    folder: AppFolder,
    channel: Name,
    url: Url = None,
    token_file: TokenFile = None,
    data: Data = None,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Tell what a channel costs and what it runs with: of the cluster that runs, or else of the data folder.

    Example: newsstand channel explain my-app alerts
    """
    known = _read_app(folder, data)
    facts = _explained_by_cluster(known, channel, url, token_file)
    if facts is None:
        facts = _explained_here(known, channel, master, conf or ())
    if as_json:
        print(json.dumps(facts))
    else:
        show_explanation(facts)


@app.command("suspended")
def suspended(
    folder: AppFolder,
    channel: Name,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume them all, from the next publications on.")
    ] = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Tell which values of a running channel are suspended, because its query fails on them, or resume them.

    Example: newsstand channel suspended my-app alerts
    """
    with open_client(_read_app(folder, None), url, token_file) as client:
        path = f"/channels/{channel}/suspensions"
        facts = _asked(client, "DELETE", path).json() if resume else _all_suspensions(client, path)
    if as_json:
        print(json.dumps(facts))
    elif resume:
        print(f"{channel}: {facts['resumed']} resumed")
    else:
        for one in facts["suspensions"]:
            print(f"{json.dumps(one['values'])}, {one['subscriptions']} subscriptions: {one['error']}")
        print(f"{channel}: {len(facts['suspensions'])} suspended")


def _all_suspensions(client: httpx.Client, path: str) -> dict[str, list[dict[str, object]]]:
    found: list[dict[str, object]] = []
    after: int | None = 0
    while after is not None:
        page = _asked(client, "GET", f"{path}?after={after}").json()
        found += page["suspensions"]
        after = page["next"]
    return {"suspensions": found}


def _asked(client: httpx.Client, method: str, path: str) -> httpx.Response:
    """What the cluster answers; BadOption if none does, BadInput if it refuses."""
    import httpx

    try:
        response = client.request(method, path)
    except httpx.TransportError as error:
        raise BadOption(f"{client.base_url}: does not answer ({error or type(error).__name__})") from error
    if response.status_code != 200:
        raise BadInput(error_of(response))
    return response


# Trying


def _read_app(folder: Path, data: Path | None) -> App:
    known = located_app(folder)
    return known if data is None else replace(known, cluster=replace(known.cluster, data=data.absolute()))


def _sets(channel: Channel, single: Sequence[str], whole: Sequence[str]) -> list[Values]:
    """The sets of values that are asked for; a channel without parameters needs none."""
    from newsstand.values import parse_values

    given = [_json_values(text) for text in whole]
    if single or not whole:
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


def _named_values(channel: Channel, texts: Sequence[str]) -> dict[str, Scalar]:
    types = {one.name: one.type for one in channel.parameters}
    named: dict[str, Scalar] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadOption(f"--value {text[:80]}: is not of the form name=value")
        if name in named:
            raise BadOption(f"--value {text[:80]}: '{name}' is given twice; use --values for several sets")
        named[name] = _of_type(value, types.get(name, "string"))
    return named


def _of_type(text: str, kind: str) -> Scalar:
    """A text as a value of a type; if it is none, the text as it is, to be refused by the parameter's name."""
    readers: dict[str, Callable[[str], Scalar]] = {"integer": int, "double": float}
    try:
        if kind == "boolean":
            return {"true": True, "false": False}.get(text.lower(), text)
        return readers.get(kind, str)(text)
    except ValueError:
        return text


def _admitted(
    file: Path, dataset: Dataset, max_page_bytes: int, refuse: Callable[[str], None]
) -> Iterator[list[bytes]]:
    """The records of a file that a cluster would let in; the others are told, by their lines."""
    from newsstand.cluster.door import Door

    if not file.is_file():
        raise BadInput(f"{file}: no such file")
    door = Door(dataset, max_page_bytes)
    for batch in batches(str(file), 5000):
        admitted = door.admit(batch.body, "json" if batch.form == "json" else "ndjson")
        for one in admitted.refused:
            refuse(f"{file}:{batch.numbers[one.index]}: {' '.join(one.reason.split())}")
        yield admitted.lines


def _require_admitted(file: Path, count: int, refused: Sequence[str]) -> None:
    if not count:
        why = f"all {len(refused)} records were refused; {refused[0]}" if refused else "has no records"
        raise BadInput(f"{file}: {why}")


# Explaining


def _explained_by_cluster(known: App, channel: str, url: str | None, token_file: Path | None) -> Facts | None:
    """What the running cluster says; None if none runs that one could ask."""
    import httpx

    from newsstand.cluster.app_folder import ADDRESS

    if url is None and not (known.data / ADDRESS).is_file():
        return None
    with open_client(known, url, token_file) as client:
        try:
            response = client.get(f"/channels/{channel}/explain")
        except httpx.TransportError as error:
            if url is None:
                say(f"note: {client.base_url} does not answer; told from the data folder")
                return None
            raise BadOption(f"--url {url}: does not answer ({error or type(error).__name__})") from error
    if response.status_code != 200:
        raise BadInput(error_of(response))
    facts: Facts = response.json()
    return facts


def _explained_here(known: App, channel: str, master: str | None, conf: Sequence[str]) -> Facts:
    from newsstand.cluster.data_folder import open_folder
    from newsstand.cluster.spark_settings import cluster_settings
    from newsstand.spark import open_session

    with open_folder(known, known.data) as opened:
        opened.catalog.channel(channel)
        kind = cluster_settings(known.spark)
        with open_session(master, conf, "newsstand channel explain", brief=True, kind=kind) as spark:
            return opened.explain(spark, channel)
