"""Requests are parsed by the declaration of a handler, and errors are answered alike everywhere."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from newsstand.errors import (
    BadInput,
    Busy,
    Duplicate,
    LimitReached,
    NewsstandError,
    NotFound,
    ResultsExpired,
    Unavailable,
)
from newsstand.http.app import Api, Routes
from newsstand.http.errors import HttpError, json_response, to_http_error
from newsstand.http.openapi import Header
from newsstand.http.request_log import RequestCounts

Name = Annotated[str, msgspec.Meta(pattern="^[a-z]+$")]
Count = Annotated[int, msgspec.Meta(ge=0, le=9)]
Latitude = Annotated[float, msgspec.Meta(ge=-90, le=90)]


@pytest.fixture(scope="module")
def api() -> Api:
    routes = Routes("test")

    @routes.get("/things/{name}", response=dict[str, object], fast=True)
    async def things(
        request: Request,
        name: Name,
        count: Count | None = None,
        lat: Latitude | None = None,
        text: str | None = None,
        kind: Literal["a", "b"] = "a",
        tag: Annotated[str | None, msgspec.Meta(max_length=3), Header("X-Tag")] = None,
    ) -> Response:
        """Return the parameters."""
        return json_response({"name": name, "count": count, "lat": lat, "text": text, "kind": kind, "tag": tag})

    @routes.put("/things/{name}/{number}", response=dict[str, object])
    async def put(request: Request, name: str, number: Count) -> Response:
        """Raise an error."""
        if number:
            raise NotFound(f"no thing {number}")
        raise HttpError(409, "nothing\nmore", {"X-More": "yes"}, reason="test")

    @routes.get("/failures/fast", fast=True)
    @routes.get("/failures/slow")
    async def fail(request: Request) -> Response:
        """Raise an error that nobody expects."""
        raise RuntimeError("a defect")

    return Api("Newsstand", "A test.", [routes], RequestCounts(CollectorRegistry(), (1.0,)))


def call(api: Api, method: str, url: str, headers: dict[str, str] | None = None) -> httpx.Response:
    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://test") as client:
            return await client.request(method, url, headers=headers)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {}),
        ("?count=7", {"count": 7}),
        ("?count=0&count=9", {"count": 9}),
        ("?lat=-33.5", {"lat": -33.5}),
        ("?lat=1e1", {"lat": 10.0}),
        ("?text=null", {"text": "null"}),
        ("?text=", {"text": ""}),
        ("?kind=b&unknown=1", {"kind": "b"}),
    ],
)
def test_parameters_are_parsed_by_their_declaration(api: Api, query: str, found: dict[str, object]) -> None:
    expected = {"name": "ann", "count": None, "lat": None, "text": None, "kind": "a", "tag": None}
    answer = call(api, "GET", f"/things/ann{query}")
    assert (answer.status_code, answer.json()) == (200, expected | found)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("/things/ann?count=10", "query count: must be a whole number from 0 to 9"),
        ("/things/ann?count=-1", "query count: must be a whole number from 0 to 9"),
        ("/things/ann?count=5.0", "query count: must be a whole number"),
        ("/things/ann?count=1e0", "query count: must be a whole number"),
        ("/things/ann?count=null", "query count: must be a whole number"),
        ("/things/ann?count=%D9%A3", "query count: must be a whole number"),
        ("/things/ann?count=" + "9" * 40, "query count: must be a whole number"),
        ("/things/ann?lat=nan", "query lat: "),
        ("/things/ann?lat=inf", "query lat: "),
        ("/things/ann?kind=c", "query kind: "),
        ("/things/Ann", "path name: "),
    ],
)
def test_parameter_out_of_bounds_is_rejected(api: Api, url: str, error: str) -> None:
    answer = call(api, "GET", url)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(error)


def test_header_is_parsed_by_its_declaration(api: Api) -> None:
    assert call(api, "GET", "/things/ann", {"x-tag": "abc"}).json()["tag"] == "abc"
    assert call(api, "GET", "/things/ann", {"x-tag": "abcd"}).status_code == 422


def test_fast_path_answers_as_the_router_does(api: Api) -> None:
    """The router answers a path with a trailing slash and other methods; both log the template of the path."""
    assert call(api, "GET", "/things/ann/").status_code == 404
    assert call(api, "POST", "/things/ann").status_code == 405
    assert call(api, "HEAD", "/things/ann").status_code == 405
    described = api.openapi()["paths"]["/things/{name}"]["get"]
    assert {one["name"]: one["in"] for one in described["parameters"]} == {
        "name": "path",
        "count": "query",
        "lat": "query",
        "text": "query",
        "kind": "query",
        "X-Tag": "header",
    }
    assert "422" in described["responses"]


def test_errors_of_handlers_are_one_line_of_json(api: Api) -> None:
    missing, conflict = call(api, "PUT", "/things/a/1"), call(api, "PUT", "/things/a/0")
    assert (missing.status_code, missing.json()) == (404, {"error": "no thing 1"})
    assert (conflict.status_code, conflict.json()) == (409, {"error": "nothing more", "reason": "test"})
    assert conflict.headers["X-More"] == "yes"


@pytest.mark.parametrize("path", ["/failures/fast", "/failures/slow"])
def test_unexpected_exception_is_logged_under_id_of_response(
    api: Api, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    failed = call(api, "GET", path, {"X-Request-Id": "r-1"})
    assert failed.status_code == 500
    assert failed.json() == {"error": "internal error; the log has details under r-1"}
    assert failed.headers["X-Request-Id"] == "r-1"
    assert "request r-1 failed" in caplog.text
    assert "RuntimeError: a defect" in caplog.text


@pytest.mark.parametrize(
    ("error", "status", "body", "headers"),
    [
        (NewsstandError("x"), 400, {}, {}),
        (BadInput("x"), 422, {}, {}),
        (NotFound("x"), 404, {}, {}),
        (LimitReached("x"), 409, {"reason": "limit"}, {}),
        (Duplicate("x", 3.0), 409, {"reason": "duplicate", "lease_s": 3.0}, {}),
        (Busy("x", 2.1), 429, {}, {"Retry-After": "3"}),
        (Unavailable("host 10.0.0.1", "x", 0.1), 503, {}, {"Retry-After": "1"}),
    ],
)
def test_status_follows_the_class_of_an_error(
    error: NewsstandError, status: int, body: dict[str, object], headers: dict[str, str]
) -> None:
    answer = to_http_error(error)
    assert (answer.status, answer.body, answer.headers or {}) == (status, {"error": "x"} | body, headers)


def test_removed_results_tell_the_first_position_that_is_left() -> None:
    assert to_http_error(ResultsExpired(7)).body["earliest"] == 7
