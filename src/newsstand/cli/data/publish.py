"""`newsstand publish` sends the records of a file to a running cluster; `newsstand trace` follows one of them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer
from typer import Argument, Option

from newsstand.cli.data.batches import LineReader, RecordBatch, array_batches, follow, reject_csv
from newsstand.cli.data.connection import AppFolder, ClusterOptions, located_app, request_json
from newsstand.cli.options import Json
from newsstand.cli.terminal import errors, print_table, say
from newsstand.errors import BadInput, BadOption, Busy, NewsstandError

if TYPE_CHECKING:
    from newsstand.http.client import BlockingHttpClient, HttpResponse
    from newsstand.wire.cluster import Receipt

AGAIN = (429, 500, 502, 503, 504)
"""Statuses after which a batch is sent again; its idempotency key makes that harmless."""
MOST_KEPT = 1000
"""Rejected records that `--json` lists; all are counted."""
MOST_SHOWN = 20
"""Rejected records that are reported on standard error."""
NOTE_S = 10.0
"""Seconds from one line about waiting to the next, at least."""
FORMS = {"json": "application/json", "ndjson": "application/x-ndjson"}


@dataclass
class PublishCounts:
    """The outcome of the records so far."""

    accepted: int = 0
    repeated: int = 0
    first: int | None = None
    last: int | None = None
    rejected: int = 0
    lines: list[dict[str, object]] = field(default_factory=list)

    def add(self, receipt: Receipt, batch: RecordBatch, name: str) -> None:
        """Count a batch, and report its rejected records."""
        if receipt.repeated:
            self.repeated += receipt.accepted
        else:
            self.accepted += receipt.accepted
        self.first = receipt.first if self.first is None else self.first
        self.last = self.last if receipt.last is None else receipt.last
        for one in receipt.rejected:
            number, reason = batch.numbers[one.index], " ".join(one.reason.split())
            self.rejected += 1
            if len(self.lines) < MOST_KEPT:
                self.lines.append({"line": number, "reason": reason})
            if self.rejected <= MOST_SHOWN:
                say(f"{name}:{number}: {reason}")
            elif self.rejected == MOST_SHOWN + 1:
                say(f"{name}: more records are rejected; --json lists up to {MOST_KEPT:,}")


@dataclass
class BatchSender:
    """Sends batches to one dataset of a cluster, and retries those without a response."""

    client: BlockingHttpClient
    path: str
    patience_s: float
    origin: str = "--url"
    """Where the address of the cluster comes from."""
    wait: Callable[[float], object] = time.sleep
    chance: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    _noted: float | None = field(default=None, init=False)
    """When the last line about waiting was printed."""

    def send(self, batch: RecordBatch, key: str) -> Receipt:
        """Send a batch until it is answered; return the receipt."""
        from newsstand.concurrency.pacing import Backoff
        from newsstand.http.client import RequestError

        headers = {"Content-Type": FORMS[batch.form], "Idempotency-Key": key}
        began, backoff = self.clock(), Backoff(0.2, 30.0, self.chance)
        failure: NewsstandError
        while True:
            try:
                response = self.client.request("POST", self.path, content=batch.body, headers=headers)
            except RequestError as error:
                requested, problem = 0.0, f"does not answer ({error.reason})"
                failure = BadOption(
                    f"records {_span(batch)}: {self.client.base_url} (from {self.origin}) {problem}; gave up: "
                    "start the cluster or name its address with --url, and run the command again to go on"
                )
            else:
                if response.status not in AGAIN:
                    return self._receipt(response, batch)
                problem = response.error_text
                failure = Busy(f"records {_span(batch)}: {problem}; gave up, run the command again to go on")
                text = response.headers.get("Retry-After", "0")
                requested = float(text) if text.isdecimal() else 0.0
            pause = max(requested, backoff.next_s())
            left = self.patience_s - (self.clock() - began)
            if pause > left:
                raise failure
            self._note(problem, left)
            self.wait(pause)

    def _note(self, problem: str, left: float) -> None:
        now = self.clock()
        if self._noted is None or now - self._noted >= NOTE_S:
            self._noted = now
            say(f"waiting for {self.client.base_url} (from {self.origin}): {problem}; giving up in {left:.0f} s")

    def _receipt(self, response: HttpResponse, batch: RecordBatch) -> Receipt:
        from newsstand.wire.cluster import Receipt

        if response.status in (200, 422) and b'"rejected"' in response.content:
            return response.decode(Receipt)
        if response.status == 401:
            raise BadInput(
                f"records {_span(batch)}: {self.client.base_url} (from {self.origin}): {response.error_text}; "
                "give another with --token-file or NEWSSTAND_TOKEN"
            )
        if response.status == 404 and "no dataset" not in response.error_text:
            raise BadInput(
                f"{self.client.base_url} (from {self.origin}): is not a data cluster; name one with --url"
            )
        if response.status == 507:
            raise NewsstandError(f"records {_span(batch)}: {response.error_text}")
        raise BadInput(f"records {_span(batch)}: {response.error_text}")


def publish(
    cluster: ClusterOptions,
    app: AppFolder,
    dataset: Annotated[str, Argument(metavar="DATASET", help="The dataset to publish to.")],
    file: Annotated[str, Argument(metavar="FILE", help="NDJSON or a JSON array; - for standard input.")],
    batch: Annotated[int, Option(min=1, help="Records in one request.")] = 5000,
    following: Annotated[
        bool, Option("--follow", help="Go on as the file grows, until Ctrl-C; a next run resumes.")
    ] = False,
    key_prefix: Annotated[str, "TEXT", "Publish a file again on purpose, under another text."] = "",
    patience: Annotated[float, Option(min=0, help="Seconds of waiting for the cluster before giving up.")] = 300.0,
    as_json: Json = False,
) -> None:
    """Publish the records of a file. A run that was cut off can be repeated: nothing is added twice.

    Example: newsstand publish my-app emergencies reports.ndjson
    """
    name = "standard input" if file == "-" else file
    if following and file == "-":
        raise BadOption("--follow: standard input cannot be followed; name a file")
    if not following and file != "-" and not Path(file).is_file():
        raise BadInput(f"{file}: {'not a file' if Path(file).exists() else 'no such file'}")
    known = located_app(app)
    counts = PublishCounts()
    with cluster.connect(known) as client:
        path = f"/datasets/{quote(dataset, safe='')}/publications"
        sender = BatchSender(client, path, patience, cluster.address_of(known)[1])
        source = _source(file, key_prefix, dataset)
        if following:
            kept = _progress_file(str(client.base_url), source)
            try:
                for one in follow(Path(file), kept, batch):
                    counts.add(sender.send(one, one.key(source)), one, name)
            except KeyboardInterrupt:
                pass  # the ordinary end; the progress is stored
        else:
            for one in _with_bar(batches(file, batch), file):
                counts.add(sender.send(one, one.key(source)), one, name)
    _report(counts, dataset, as_json)
    if counts.rejected:
        raise typer.Exit(2)


def trace(
    cluster: ClusterOptions,
    app: AppFolder,
    dataset: Annotated[str, Argument(metavar="DATASET", help="The dataset of the publication.")],
    number: Annotated[int, Argument(metavar="NUMBER", min=1, help="Its number in the dataset.")],
    as_json: Json = False,
) -> None:
    """Print when each stage of a publication ended, from its request to the acknowledgements of subscribers.

    Example: newsstand trace my-app emergencies 17
    """
    with cluster.connect(located_app(app)) as client:
        facts = request_json(client, "GET", f"/datasets/{quote(dataset, safe='')}/publications/{number}/trace")
    if as_json:
        print(json.dumps(facts))
    else:
        _show_trace(facts, dataset)


def _show_trace(facts: Mapping[str, Any], dataset: str) -> None:
    if "lost" not in facts and "stages" not in facts:
        raise BadInput(
            f"{dataset} {facts['publication']}: the cluster is of an earlier version and reports no stages; "
            "restart it with this version, or use --json"
        )
    if "lost" in facts:
        print(f"{dataset} {facts['publication']}: lost from the log: {facts['lost']['why']}")
        begin = None
    else:
        begin = facts["stages"]["received"] or facts["accepted_at_ms"]
        accepted = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(begin / 1000))
        known = "received" if facts["stages"]["received"] else "accepted (when it was received is unknown)"
        print(f"{dataset} {facts['publication']}: {known} {accepted}.{begin % 1000:03d} UTC")
    for channel in facts["channels"]:
        if channel["state"] != "evaluated" or begin is None:
            more = channel.get("error") or (f"{channel['behind']} before it" if "behind" in channel else "")
            print(f"channel {channel['channel']}: {channel['state']}{f', {more}' if more else ''}")
            continue
        reached = f"execution {channel['execution']}, streams reached: {channel['reached']}"
        print(f"channel {channel['channel']}: {reached}")
        rows = [
            _stage_row(stage, "cluster", [ended], begin)
            for stage, ended in ({**facts["stages"], **channel["stages"]}).items()
        ]
        for broker in channel["brokers"]:
            if broker["deliveries"] or broker["unknown"]:  # else it was notified of other publications
                rows += _broker_rows(broker, begin)
        print_table(("stage", "at", "first ms", "last ms", ""), rows, ("stage", "at", ""))
        for broker in channel["brokers"]:
            if broker["error"] is not None:
                print(f"broker {broker['broker']} {broker['error']}")
            elif broker["unknown"]:
                results = "1 result" if broker["unknown"] == 1 else f"{broker['unknown']:,} results"
                print(f"broker {broker['broker']} has no record of {results}")


def _broker_rows(broker: Mapping[str, Any], begin: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for each stage at a broker, over all streams of the publication."""
    name, deliveries = broker["broker"], broker["deliveries"]
    notes = {
        "signalled": (sum(one["connections"] for one in deliveries), "connection"),
        "acknowledged": (sum(one["subscribers"] for one in deliveries), "subscriber"),
    }
    for stage in ("notified", "pulled", "signalled", "read", "acknowledged"):
        ended = [one[stage] for one in deliveries]
        if stage == "acknowledged":
            ended += [one["last_acknowledged"] for one in deliveries]
        note = ""
        if deliveries and stage in notes:
            count, noun = notes[stage]
            note = f"{count} {noun}{'s' * (count != 1)}"
        missing = "not yet" if deliveries else "unknown"
        if stage == "pulled" and deliveries and all(one["signalled"] is not None for one in deliveries):
            missing = "none"  # the broker has no result cache (`nc`)
        yield _stage_row(stage, name, ended, begin, missing, note)


def _stage_row(
    stage: str, place: str, ended: Sequence[int | None], begin: int, missing: str = "unknown", note: str = ""
) -> tuple[str, ...]:
    """Return a row with the milliseconds from `begin` to the first and the last end of a stage."""
    known = [max(0, at - begin) for at in ended if at is not None]
    first, last = (f"{min(known):,}", f"{max(known):,}") if known else (missing, missing)
    return stage, place, first, last, note


def batches(file: str, most: int) -> Iterator[RecordBatch]:
    """Yield the records of a file of NDJSON or a JSON array, or of standard input (`-`), in batches of `most`."""
    if file == "-":
        yield from _line_batches(LineReader(sys.stdin.buffer), "standard input", most)
        return
    with open(file, "rb") as opened:
        if Path(file).suffix == ".json" or opened.read(64).lstrip()[:1] == b"[":
            opened.seek(0)
            yield from array_batches(opened.read(), file, most)
            return
        opened.seek(0)
        yield from _line_batches(LineReader(opened), file, most)


def _line_batches(reader: LineReader, name: str, most: int) -> Iterator[RecordBatch]:
    is_first = True
    while (one := reader.batch(most)) is not None:
        if one.numbers:
            if is_first:
                reject_csv(one.body, name, one.numbers[0])
            is_first = False
            yield one


def _source(file: str, prefix: str, dataset: str) -> str:
    """Return what a file's idempotency keys start from: its path; standard input is new without a prefix."""
    place = str(Path(file).resolve()) if file != "-" else ("-" if prefix else uuid.uuid4().hex)
    return json.dumps([prefix, dataset, place])


def _progress_file(address: str, source: str) -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return (
        state / "newsstand" / "follow" / f"{hashlib.sha256(f'{address} {source}'.encode()).hexdigest()[:32]}.json"
    )


def _with_bar(batches: Iterator[RecordBatch], file: str) -> Iterator[RecordBatch]:
    """Yield the batches, with a bar that follows them on a terminal."""
    if not sys.stderr.isatty() or file == "-":
        yield from batches
        return
    from rich.progress import Progress

    with Progress(console=errors, transient=True) as bar:
        task = bar.add_task("publishing", total=None)
        for one in batches:
            yield one
            total = Path(file).stat().st_size if one.form == "ndjson" else None
            bar.update(task, total=total, completed=one.end)


def _report(counts: PublishCounts, dataset: str, as_json: bool) -> None:
    if as_json:
        fields = {key: getattr(counts, key) for key in ("accepted", "repeated", "first", "last")}
        print(json.dumps({"dataset": dataset, **fields, "rejected": counts.rejected, "rejections": counts.lines}))
        return
    repeated = f", {counts.repeated:,} were there already" if counts.repeated else ""
    rejected = f", {counts.rejected:,} rejected" if counts.rejected else ""
    print(f"{dataset}: {counts.accepted:,} accepted{repeated}{rejected}")


def _span(batch: RecordBatch) -> str:
    return f"{batch.numbers[0]} to {batch.numbers[-1]}" if batch.numbers else "none"
