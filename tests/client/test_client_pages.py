"""Pages of the client: where it goes, what it believes, and when it comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from newsstand.client.calls import Answer, Lost, accepted
from newsstand.client.errors import Misused, Refused
from newsstand.client.nouns import Page
from newsstand.client.pages import Pages
from newsstand.client.publisher import Publisher
from newsstand.model import page_id

FRONT = b"<h1>Front</h1>"
TAG = f'"{page_id(FRONT)}"'
SENT = Answer("", 307, {"newsstand-redirect": "berlin", "location": "http://berlin.example/copies/x"}, b"")
FROM_HOME = Answer("", 200, {"etag": TAG, "content-type": "text/html"}, FRONT)


class Elsewhere:
    """The other broker; `asked` are the headers that it got."""

    def __init__(self, answer: Answer | Exception) -> None:
        self.answer = answer
        self.asked: list[dict[str, str]] = []

    async def once(self, method: str, url: str, *, headers: dict[str, str], answer_s: float) -> Answer:
        assert (method, url) == ("GET", "http://berlin.example/copies/x")
        self.asked.append(headers)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def read(
    elsewhere: Elsewhere, *, path: str = "named/front", etag: str | None = None
) -> tuple[Page | None, list[Any]]:
    """A page whose home sends the client away once, and what the home was asked."""
    asked: list[Any] = []

    async def ask(method: str, path: str, **more: Any) -> Answer:
        asked.append(more)
        return SENT if len(asked) == 1 else FROM_HOME

    pages = Pages(elsewhere, ask, (48.9, 2.4), "Gare du Nord")  # type: ignore[arg-type]
    return asyncio.run(pages.get(path, "front", etag)), asked


def test_it_goes_where_it_is_sent_without_a_token() -> None:
    elsewhere = Elsewhere(FROM_HOME)
    page, asked = read(elsewhere)
    assert page == Page("front", FRONT, "text/html", TAG)
    assert elsewhere.asked == [{}]
    assert asked == [
        {
            "headers": {
                "Newsstand-Near": "48.900000,2.400000",
                "Newsstand-Node": "Gare%20du%20Nord",
                "Newsstand-Redirects": "yes",
            },
            "may_be_sent": True,
        }
    ]


@pytest.mark.parametrize(
    "answer",
    [
        Lost("nobody is there", gone=True),
        Answer("", 404, {}, b'{"error": "invalid"}'),
        Answer("", 200, {"etag": TAG}, b"Log in to this network"),
        Answer("", 200, {}, FRONT),
        Answer("", 304, {"etag": TAG}, b""),
        Answer("", 307, {"location": "http://elsewhere.example"}, b""),
    ],
    ids=["dead", "invalid", "other", "untagged", "unasked", "further"],
)
def test_it_comes_back_from_whatever_is_not_the_page(answer: Answer | Exception) -> None:
    page, asked = read(Elsewhere(answer))
    assert page is not None
    assert page.content == FRONT
    assert asked[1]["headers"]["Newsstand-Invalid-At"] == "berlin"
    assert "may_be_sent" not in asked[1], "it is not sent away twice"


def test_what_never_changes_is_known_by_its_id() -> None:
    untagged = Answer("", 200, {}, FRONT)
    assert len(read(Elsewhere(untagged), path=f"pages/{page_id(FRONT)}")[1]) == 1
    assert len(read(Elsewhere(untagged), path=f"pages/{page_id(b'other')}")[1]) == 2


def test_what_it_has_is_not_sent_again() -> None:
    elsewhere = Elsewhere(Answer("", 304, {}, b""))
    assert read(elsewhere, etag=TAG)[0] is None
    assert elsewhere.asked == [{"If-None-Match": TAG}]


def test_for_other_calls_a_redirect_is_no_success() -> None:
    with pytest.raises(Refused):
        accepted(SENT)


@pytest.mark.parametrize(
    "path", ["named/../channels", "named/%2e%2e/channels", "named/a?b", "named/", "pages/../stats", "pages/0"]
)
def test_what_cannot_be_a_page_is_not_asked_for(path: str) -> None:
    with pytest.raises(Misused):
        read(Elsewhere(FROM_HOME), path=path)


@pytest.mark.parametrize(
    ("name", "content", "type"),
    [
        ("a", None, "text/html"),
        ("a", {"a": 1}, "text/html"),
        ("a", "text", "text/html"),
        ("a", b"", "text/html\r\nx: y"),
        ("a", b"", None),
        ("../a", b"", "text/html"),
        (3, b"", "text/html"),
    ],
)
def test_what_cannot_be_put_is_not_sent(name: Any, content: Any, type: Any) -> None:
    async def put() -> None:
        async with Publisher("http://127.0.0.1:9", "token") as publisher:
            await publisher.put_page(name, content, type)

    with pytest.raises(Misused):
        asyncio.run(put())
