"""Pages of the client: redirects, verification, and the fallback to its own broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from newsstand.client.http import ApiResponse, Pace, ServerUnavailable, accepted
from newsstand.client.models import Page, RequestRejected, UsageError
from newsstand.client.pages import Pages
from newsstand.client.publisher import Publisher
from newsstand.model import page_id

FRONT = b"<h1>Front</h1>"
TAG = f'"{page_id(FRONT)}"'
SENT = ApiResponse("", 307, {"newsstand-redirect": "berlin", "location": "http://berlin.example/copies/x"}, b"")
FROM_OWN_BROKER = ApiResponse("", 200, {"etag": TAG, "content-type": "text/html"}, FRONT)


class Elsewhere:
    """The other broker; `asked` lists the headers of its requests."""

    pace = Pace()

    def __init__(self, answer: ApiResponse | Exception) -> None:
        self.answer = answer
        self.asked: list[dict[str, str]] = []

    async def once(self, method: str, url: str, *, headers: dict[str, str], timeout_s: float) -> ApiResponse:
        assert (method, url) == ("GET", "http://berlin.example/copies/x")
        self.asked.append(headers)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def read(
    elsewhere: Elsewhere, *, path: str = "named/front", etag: str | None = None
) -> tuple[Page | None, list[Any]]:
    """Return a page after one redirect, and the requests at the client's own broker."""
    asked: list[Any] = []

    async def ask(method: str, path: str, **more: Any) -> ApiResponse:
        asked.append(more)
        return SENT if len(asked) == 1 else FROM_OWN_BROKER

    pages = Pages(elsewhere, ask, (48.9, 2.4), "Gare du Nord")  # type: ignore[arg-type]
    return asyncio.run(pages.get(path, "front", etag)), asked


def test_page_redirect_followed_without_a_token() -> None:
    elsewhere = Elsewhere(FROM_OWN_BROKER)
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
            "follow_redirects": True,
        }
    ]


@pytest.mark.parametrize(
    "answer",
    [
        ServerUnavailable("nobody is there", is_down=True),
        ApiResponse("", 404, {}, b'{"error": "invalid"}'),
        ApiResponse("", 200, {"etag": TAG}, b"Log in to this network"),
        ApiResponse("", 200, {}, FRONT),
        ApiResponse("", 304, {"etag": TAG}, b""),
        ApiResponse("", 307, {"location": "http://elsewhere.example"}, b""),
    ],
    ids=["dead", "invalid", "other", "untagged", "unasked", "further"],
)
def test_page_served_by_own_broker_when_redirect_fails(answer: ApiResponse | Exception) -> None:
    page, asked = read(Elsewhere(answer))
    assert page is not None
    assert page.content == FRONT
    assert asked[1]["headers"]["Newsstand-Invalid-At"] == "berlin"
    assert "follow_redirects" not in asked[1], "it is not sent away twice"


def test_redirected_page_verified_by_its_id() -> None:
    untagged = ApiResponse("", 200, {}, FRONT)
    assert len(read(Elsewhere(untagged), path=f"pages/{page_id(FRONT)}")[1]) == 1
    assert len(read(Elsewhere(untagged), path=f"pages/{page_id(b'other')}")[1]) == 2


def test_page_not_sent_again_when_etag_matches() -> None:
    elsewhere = Elsewhere(ApiResponse("", 304, {}, b""))
    assert read(elsewhere, etag=TAG)[0] is None
    assert elsewhere.asked == [{"If-None-Match": TAG}]


def test_redirect_rejected_by_other_calls() -> None:
    with pytest.raises(RequestRejected):
        accepted(SENT)


@pytest.mark.parametrize(
    "path", ["named/../channels", "named/%2e%2e/channels", "named/a?b", "named/", "pages/../stats", "pages/0"]
)
def test_page_with_invalid_name_not_requested(path: str) -> None:
    with pytest.raises(UsageError):
        read(Elsewhere(FROM_OWN_BROKER), path=path)


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
def test_put_page_rejects_invalid_arguments(name: Any, content: Any, type: Any) -> None:
    async def put() -> None:
        async with Publisher("http://127.0.0.1:9", "token") as publisher:
            await publisher.put_page(name, content, type)

    with pytest.raises(UsageError):
        asyncio.run(put())
