"""`newsstand publish`: records of a file, sent to a running cluster; each of them counts once."""

from __future__ import annotations

import hashlib
import json
import os
import random
import ssl
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.options import Json
from newsstand.cli.progress import errors, say
from newsstand.cli.publications import Batch, LineReader, array_batches, follow, refuse_csv
from newsstand.errors import BadInput, BadOption, Busy, NewsstandError

if TYPE_CHECKING:
    import httpx

    from newsstand.cluster.app_folder import App

AGAIN = (429, 500, 502, 503, 504)
"""The answers after which a batch is sent again; its key makes that harmless."""
MOST_KEPT = 1000
"""Refused records that `--json` lists; all are counted."""
NOTE_S = 10.0
"""Seconds from one line about waiting to the next, at least."""
FORMS = {"json": "application/json", "ndjson": "application/x-ndjson"}

AppFolder = Annotated[Path, typer.Argument(metavar="APP", help="The app folder, with newsstand.toml.")]
Url = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="Where the cluster is, if not where the app says.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="A file with the token (or set NEWSSTAND_TOKEN)."),
]


@dataclass
class Tally:
    """What became of the records so far."""

    accepted: int = 0
    repeated: int = 0
    first: int | None = None
    last: int | None = None
    refused: int = 0
    lines: list[dict[str, object]] = field(default_factory=list)

    def add(self, receipt: dict[str, object], batch: Batch, name: str) -> None:
        """Count a batch, and tell which of its records were refused."""
        accepted, first, last = (_whole(receipt.get(key)) for key in ("accepted", "first", "last"))
        if receipt.get("repeated"):
            self.repeated += accepted or 0
        else:
            self.accepted += accepted or 0
        self.first = first if self.first is None else self.first
        self.last = self.last if last is None else last
        listed = receipt.get("refused")
        for one in listed if isinstance(listed, list) else []:
            number, reason = batch.numbers[one["index"]], " ".join(str(one["reason"]).split())
            self.refused += 1
            if len(self.lines) < MOST_KEPT:
                self.lines.append({"line": number, "reason": reason})
            say(f"{name}:{number}: {reason}")


@dataclass
class Sender:
    """Sends batches to one dataset of a cluster, and repeats what is not answered."""

    client: httpx.Client
    path: str
    patience_s: float
    origin: str = "--url"
    """Where the address of the cluster is written."""
    wait: Callable[[float], object] = time.sleep
    chance: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    _noted: float | None = field(default=None, init=False)
    """When the last line about waiting was printed."""

    def send(self, batch: Batch, key: str) -> dict[str, object]:
        """Send a batch until it is answered; return the receipt."""
        import httpx

        headers = {"Content-Type": FORMS[batch.form], "Idempotency-Key": key}
        began, attempt = self.clock(), 0
        failure: NewsstandError
        while True:
            try:
                response = self.client.post(self.path, content=batch.body, headers=headers)
            except httpx.TransportError as error:
                asked, problem = 0.0, f"does not answer ({error or type(error).__name__})"
                failure = BadOption(
                    f"records {_span(batch)}: {self.client.base_url} (from {self.origin}) {problem}; gave up: "
                    "start the cluster or name its address with --url, and run the command again to go on"
                )
            else:
                if response.status_code not in AGAIN:
                    return self._receipt(response, batch)
                problem = error_of(response)
                failure = Busy(f"records {_span(batch)}: {problem}; gave up, run the command again to go on")
                text = response.headers.get("Retry-After", "0")
                asked = float(text) if text.isdecimal() else 0.0
            pause = max(asked, min(30.0, 0.2 * 2**attempt) * self.chance())
            attempt += 1
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

    def _receipt(self, response: httpx.Response, batch: Batch) -> dict[str, object]:
        try:
            told = response.json()
        except ValueError:
            told = None
        if isinstance(told, dict) and response.status_code in (200, 422) and "refused" in told:
            return told
        if response.status_code == 401:
            raise BadInput(
                f"records {_span(batch)}: {self.client.base_url} (from {self.origin}): {error_of(response)}; "
                "give another with --token-file or NEWSSTAND_TOKEN"
            )
        if response.status_code == 404 and "no dataset" not in error_of(response):
            raise BadInput(f"{self.client.base_url} (from {self.origin}) is not a data cluster")
        if response.status_code == 507:
            raise NewsstandError(f"records {_span(batch)}: {error_of(response)}")
        raise BadInput(f"records {_span(batch)}: {error_of(response)}")


def publish(
    app: AppFolder,
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="The dataset to publish to.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="NDJSON or a JSON array; - for standard input.")],
    batch: Annotated[int, typer.Option("--batch", min=1, help="Records in one request.")] = 5000,
    following: Annotated[
        bool, typer.Option("--follow", help="Go on as the file grows, until Ctrl-C; a next run resumes.")
    ] = False,
    key_prefix: Annotated[
        str,
        typer.Option("--key-prefix", metavar="TEXT", help="Publish a file again on purpose, under another text."),
    ] = "",
    patience: Annotated[float, typer.Option(help="Seconds of waiting for the cluster before giving up.")] = 300.0,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Publish the records of a file. A run that was cut off can be repeated: nothing is added twice.

    Example: newsstand publish my-app emergencies reports.ndjson
    """
    name = "standard input" if file == "-" else file
    if following and file == "-":
        raise BadOption("--follow: standard input cannot be followed; name a file")
    if not following and file != "-" and not Path(file).is_file():
        raise BadInput(f"{file}: no such file")
    known = located_app(app)
    tally = Tally()
    address, origin = address_of(known, url)
    with client_of(address, known.data, token_file) as client:
        sender = Sender(client, f"/datasets/{dataset}/publications", patience, origin)
        source = _source(file, key_prefix, dataset)
        if following:
            kept = _progress_file(str(client.base_url), source)
            try:
                for one in follow(Path(file), kept, batch):
                    tally.add(sender.send(one, one.key(source)), one, name)
            except KeyboardInterrupt:
                pass  # the ordinary end; how far it came is kept
        else:
            for one in _with_bar(batches(file, batch), file):
                tally.add(sender.send(one, one.key(source)), one, name)
    _tell(tally, dataset, as_json)
    if tally.refused:
        raise typer.Exit(2)


def located_app(folder: Path) -> App:
    """An app, with the data folder of its platform if that runs on this machine."""
    from newsstand.cluster.app_folder import read_app
    from newsstand.platform.folder import folder_in_use

    known = read_app(folder)
    data = folder_in_use(known.data)
    return known if data == known.data else replace(known, cluster=replace(known.cluster, data=data))


def trusted(file: str | None) -> ssl.SSLContext | bool:
    """Whose certificates are trusted: those of SSL_CERT_FILE, else the usual ones."""
    if not file:
        return True
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise BadOption(f"SSL_CERT_FILE {file}: no certificates can be read ({error.strerror})") from error


def open_client(app: App, url: str | None, token_file: Path | None) -> httpx.Client:
    """A client of an app's cluster: where it listens now, or where it is configured to."""
    return client_of(address_of(app, url)[0], app.data, token_file)


def address_of(app: App, url: str | None) -> tuple[str, str]:
    """The address of an app's cluster, and where it is written."""
    from newsstand.cluster.app_folder import ADDRESS, FILE

    if url:
        return url, "--url"
    file = app.data / ADDRESS  # written by a cluster that runs on this machine, or is about to
    if file.is_file():
        return file.read_text().strip(), str(file)
    scheme = "http" if app.tls is None else "https"
    return f"{scheme}://{app.cluster.host}:{app.cluster.port}", f"[cluster] of {app.folder / FILE}"


def client_of(address: str, data: Path | None, token_file: Path | None) -> httpx.Client:
    """A client of the cluster at an address; its token is perhaps in a data folder of this machine."""
    import httpx

    from newsstand.cluster.tokens import find_token
    from newsstand.serving.settings import is_http_url

    if not is_http_url(address):
        raise BadOption(f"--url {address}: must be a URL such as http://127.0.0.1:8780")
    token = find_token(data, token_file, os.environ.get("NEWSSTAND_TOKEN"))
    if not token.isascii() or not token.isprintable():
        raise BadOption("the token has characters that no token has")
    try:
        return httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
            trust_env=False,
            verify=trusted(os.environ.get("SSL_CERT_FILE")),
        )
    except (httpx.InvalidURL, ValueError) as error:
        raise BadOption(f"--url {address}: {error}") from error


def batches(file: str, most: int) -> Iterator[Batch]:
    """The records of a file of NDJSON or a JSON array, or of standard input (`-`), so many at a time."""
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


def _line_batches(reader: LineReader, name: str, most: int) -> Iterator[Batch]:
    is_first = True
    while (one := reader.batch(most)) is not None:
        if one.numbers:
            if is_first:
                refuse_csv(one.body, name, one.numbers[0])
            is_first = False
            yield one


def _source(file: str, prefix: str, dataset: str) -> str:
    """What a file is for its keys: its place; what comes through a pipe is new every time, unless named."""
    place = str(Path(file).resolve()) if file != "-" else ("-" if prefix else uuid.uuid4().hex)
    return json.dumps([prefix, dataset, place])


def _progress_file(address: str, source: str) -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return (
        state / "newsstand" / "follow" / f"{hashlib.sha256(f'{address} {source}'.encode()).hexdigest()[:32]}.json"
    )


def _with_bar(batches: Iterator[Batch], file: str) -> Iterator[Batch]:
    """The same batches, and on a terminal a bar that follows them."""
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


def _tell(tally: Tally, dataset: str, as_json: bool) -> None:
    if as_json:
        counts = {key: getattr(tally, key) for key in ("accepted", "repeated", "first", "last")}
        print(json.dumps({"dataset": dataset, **counts, "refused": tally.refused, "refusals": tally.lines}))
        return
    there = f", {tally.repeated:,} were there already" if tally.repeated else ""
    refused = f", {tally.refused:,} refused" if tally.refused else ""
    print(f"{dataset}: {tally.accepted:,} accepted{there}{refused}")


def error_of(response: httpx.Response) -> str:
    """What an answer of the cluster complains of."""
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"the cluster answered {response.status_code}"


def _span(batch: Batch) -> str:
    return f"{batch.numbers[0]} to {batch.numbers[-1]}" if batch.numbers else "none"


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
