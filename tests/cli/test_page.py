"""`newsstand page`: pages are stored under their names, and mistakes are one line."""

from __future__ import annotations

import io
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.press import ADMIN, PUBLISHER, Press

from newsstand.auth.api_tokens import ApiToken, ApiTokens, digest_of
from newsstand.cli.main import run

READER = "newsstand_" + "c" * 64
LARGEST = 100_000
APP = f"""
[datasets.reports]
fields = {{id = "string"}}

[cluster]
max_page_bytes = {LARGEST}
"""


@pytest.fixture
def press(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Press]:
    """A cluster that serves the app folder `app` of the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEWSSTAND_TOKEN", PUBLISHER)
    Path("app").mkdir()
    Path("app/newsstand.toml").write_text(APP)
    made = Press(tmp_path / "app")
    scopes = {ADMIN: "admin", PUBLISHER: "publish:*", READER: "read"}
    made.tokens = ApiTokens(ApiToken("one", digest_of(text), frozenset([scope])) for text, scope in scopes.items())
    Path("gate.token").write_text(PUBLISHER + "\n")
    with made.serving() as url:
        (made.app.data / "address").write_text(url + "\n")
        yield made


def page(*words: str) -> int:
    return run(["page", *words, "--app", "app"])


def stored(press: Press, name: str) -> tuple[str, bytes]:
    found, content = press.origin.named.read(name)
    return found.type, content


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that failed has said: one line, and nothing on standard output."""
    message = capsys.readouterr()
    (line,) = message.err.splitlines()
    assert message.out == ""
    return line.removeprefix("newsstand: ")


def test_page_is_put_and_replaced(press: Press, capsys: pytest.CaptureFixture[str]) -> None:
    Path("front.html").write_text("<p>one")
    assert page("put", "front.html", "front.html") == 0
    assert capsys.readouterr().out == "front.html: new, 6 bytes, text/html\n"
    Path("front.html").write_text("<p>three")
    assert page("put", "front.html", "front.html") == 0
    assert page("put", "front.html", "front.html") == 0
    assert capsys.readouterr().out.splitlines() == [
        "front.html: changed, 8 bytes, text/html",
        "front.html: as it was, 8 bytes, text/html",
    ]
    assert stored(press, "front.html") == ("text/html", b"<p>three")


@pytest.mark.parametrize(
    ("name", "file", "options", "kind"),
    [
        ("sport/today", "today.css", (), "text/css"),
        ("today.css", "noted", (), "application/octet-stream"),
        ("old.html", "old.html.gz", (), "application/octet-stream"),
        ("plain.html", "plain.html", ("--type", "text/plain; charset=utf-8"), "text/plain; charset=utf-8"),
    ],
)
def test_type_is_option_or_that_of_file(
    press: Press, name: str, file: str, options: tuple[str, ...], kind: str
) -> None:
    Path(file).write_bytes(b"\x00\xff")
    assert page("put", name, file, *options) == 0
    assert stored(press, name) == (kind, b"\x00\xff")


def test_standard_input_is_put_with_type_of_name(press: Press, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"c": 21}')))
    assert page("put", "weather/now.json", "-") == 0
    assert stored(press, "weather/now.json") == ("application/json", b'{"c": 21}')


def test_address_and_token_suffice_without_app(press: Press, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEWSSTAND_TOKEN")
    Path("a.txt").write_text("a")
    assert run(["page", "put", "a", "a.txt", "--url", press.url, "--token-file", "gate.token"]) == 0
    assert stored(press, "a") == ("text/plain", b"a")
    monkeypatch.chdir("app")
    assert run(["page", "drop", "a", "--token-file", "../gate.token"]) == 0


def test_pages_are_listed_by_name_in_any_number(
    press: Press, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)  # hundreds of them take seconds
    names = [f"p/{number:04}" for number in range(1001)]  # an answer has up to 1000
    for number, name in enumerate(names):
        press.origin.named.put(name, b"x" * (number + 500), "text/plain", 1_794_794_505_524)
    assert page("list", "--json") == 2, "to publish is not to read"
    assert "scope" in complaint(capsys)
    Path("reader.token").write_text(READER)
    assert page("list", "--json", "--token-file", "reader.token") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in listed] == names
    assert set(listed[0]) == {"name", "id", "size", "type", "modified_ms"}
    assert page("list", "--token-file", "reader.token") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(names)
    assert lines[0] == "name    type        modified             bytes"
    assert lines[1] == "p/0000  text/plain  2026-11-16 02:01:45    500"
    assert lines[1001] == "p/1000  text/plain  2026-11-16 02:01:45  1,500"


def test_list_is_empty_without_pages(press: Press, capsys: pytest.CaptureFixture[str]) -> None:
    Path("reader.token").write_text(READER)
    assert page("list", "--token-file", "reader.token") == 0
    assert capsys.readouterr().out == ""


def test_page_is_dropped_once(press: Press, capsys: pytest.CaptureFixture[str]) -> None:
    press.origin.named.put("sport/today.html", b"2:1", "text/html", 1)
    assert page("drop", "sport/today.html") == 0
    assert capsys.readouterr().out == "sport/today.html: dropped\n"
    assert page("drop", "sport/today.html") == 2
    assert complaint(capsys) == "no named page 'sport/today.html'"
    press.origin.named.put("a", b"", "text/html", 1)
    assert page("drop", "a", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"dropped": "a"}


def test_json_is_answer_of_cluster(press: Press, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text("abc")
    for changed in (True, False):
        assert page("put", "a", "a.txt", "--json") == 0
        message = json.loads(capsys.readouterr().out)
        assert (message["name"], message["size"], message["type"], message["changed"]) == (
            "a",
            3,
            "text/plain",
            changed,
        )


@pytest.mark.parametrize("size", [LARGEST + 1, 300 * LARGEST])
def test_page_rejected_when_too_large(press: Press, capsys: pytest.CaptureFixture[str], size: int) -> None:
    Path("film").write_bytes(bytes(size))
    assert page("put", "film", "film") == 2
    assert re.fullmatch(rf"film: .*{LARGEST}.*", complaint(capsys))
    assert press.origin.named.list("", 10) == []
    Path("film").write_bytes(bytes(LARGEST))
    assert page("put", "film", "film") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("put", "a", "nowhere.html"), "nowhere.html: no such file"),
        (("put", "a", "app"), "app: is a folder, not a file"),
        (("put", "../a", "app/newsstand.toml"), "NAME ../a: must be 1 to 200 of .*"),
        (("put", "a//b", "app/newsstand.toml"), "NAME a//b: must be 1 to 200 of .*"),
        (("put", "a?x=1", "app/newsstand.toml"), r"NAME a\?x=1: must be 1 to 200 of .*"),
        (("put", "a" * 201, "app/newsstand.toml"), "NAME a{201}: must be 1 to 200 of .*"),
        (("drop", "."), r"NAME \.: must be 1 to 200 of .*"),
        (("put", "a", "app/newsstand.toml", "--type", "html"), "--type html: must be a media type, such as .*"),
        (("put", "a", "app/newsstand.toml", "--type", "a/b;\r\nX: y"), "--type a/b; X: y: must be a media type.*"),
        (("put", "a", "app/newsstand.toml", "--token-file", "none"), "--token-file none: .*"),
        (("put", "a", "app/newsstand.toml", "--token-file", "app/newsstand.toml"), "--token-file .* one token .*"),
        (("list", "--url", "ftp://127.0.0.1"), ".*ftp://.*"),
    ],
)
def test_mistake_is_one_line(
    press: Press, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert page(*words) == 2
    assert re.fullmatch(message, complaint(capsys))
    assert press.origin.named.list("", 10) == []


def test_token_rejected_when_wrong(
    press: Press, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.txt").write_text("abc")
    monkeypatch.setenv("NEWSSTAND_TOKEN", "newsstand_" + "0" * 64)
    assert page("put", "a", "a.txt") == 2
    assert "token" in complaint(capsys)
    monkeypatch.setenv("NEWSSTAND_TOKEN", READER)
    assert page("put", "a", "a.txt") == 2
    assert "scope" in complaint(capsys)


def test_missing_cluster_is_reported(press: Press, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        assert page("list", "--url", url) == 1
    assert complaint(capsys).startswith(f"{url}: does not answer (")
    assert page("list", "--url", "ftp://127.0.0.1") == 2
    assert complaint(capsys) == "--url ftp://127.0.0.1: must be a URL such as http://127.0.0.1:8780"


def test_address_is_required_without_app(press: Press, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["page", "list"]) == 2
    said = complaint(capsys)
    assert said == "--app: no newsstand.toml here; name the app folder, or the cluster with --url"
    assert run(["page", "list", "--app", "nowhere"]) == 2
    assert "nowhere" in complaint(capsys)
