"""Routes of the dashboard, without a browser."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from support.web.moving_city import MovingCity
from support.web.page_server import PageServer

from newsstand.caching import RESULT_POLICIES


@pytest.fixture(scope="module")
def the_city() -> MovingCity:
    return MovingCity()


@pytest.fixture(scope="module")
def client(the_city: MovingCity) -> Iterator[httpx.Client]:
    with (
        PageServer(the_city, hosts=("Demo.Example.org",)) as server,
        httpx.Client(base_url=server.url, trust_env=False, verify=False) as client,
    ):
        yield client


@pytest.fixture
def city(the_city: MovingCity) -> MovingCity:
    the_city.switched.clear()
    return the_city


def test_page_and_its_files_are_served(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for name, kind in {"page.js": "text/javascript", "page.css": "text/css", "icon.svg": "image/svg+xml"}.items():
        assert f"static/{name}" in page.text
        assert client.get(f"/static/{name}").headers["content-type"].startswith(kind)


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/state.json", "/nothing", "/static/nothing"])
def test_page_is_isolated_by_its_headers(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_files_name_no_other_host(client: httpx.Client) -> None:
    scripts = ("page", "map", "chart", "policy", "drawing", "format")
    for path in ("/", "/static/page.css", *(f"/static/{name}.js" for name in scripts)):
        text = client.get(path).text.replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text.replace("// ", ""), path


@pytest.mark.parametrize("path", ["/static/..%2fdashboard.py", "/static/%00", "/static/", "/nothing"])
def test_missing_path_is_reported_in_one_line(client: httpx.Client, path: str) -> None:
    rejected = client.get(path)
    assert rejected.status_code == 404
    assert rejected.json()["error"].startswith("there is no such ")


def test_state_is_read_for_each_request(client: httpx.Client) -> None:
    first, second = client.get("/state.json"), client.get("/state.json")
    assert second.json()["elapsed_s"] == first.json()["elapsed_s"] + 1
    assert first.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("by", ["the page", "a program"])
@pytest.mark.parametrize("policy", RESULT_POLICIES)
def test_policy_is_switched(client: httpx.Client, city: MovingCity, policy: str, by: str) -> None:
    headers = {"Origin": str(client.base_url).rstrip("/")} if by == "the page" else {}
    switched = client.post("/policy", json={"policy": policy}, headers=headers)
    assert (switched.status_code, switched.json()) == (200, {"policy": policy})
    assert city.policy == policy
    assert client.get("/state.json").json()["policy"] == policy


@pytest.mark.parametrize("origin", ["http://127.0.0.1:1", "http://elsewhere.example.org", "null", ""])
def test_policy_switch_rejected_from_other_origins(client: httpx.Client, city: MovingCity, origin: str) -> None:
    rejected = client.post("/policy", json={"policy": "lsc"}, headers={"Origin": origin})
    assert rejected.status_code == 403
    assert city.switched == []


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8780", 200),
        ("localhost", 200),
        ("LocalHost:8780", 200),
        ("[::1]:8780", 200),
        ("10.0.0.7", 200),
        ("demo.example.org:80", 200),
        ("elsewhere.example.org:8780", 421),
        ("127.0.0.1.elsewhere.example.org", 421),
        ("", 421),
    ],
)
def test_host_name_rejected_when_unknown(client: httpx.Client, host: str, status: int) -> None:
    """A name can be made to lead here (DNS rebinding), and its page would be of the same origin."""
    answered = client.get("/state.json", headers={"Host": host})
    assert answered.status_code == status
    assert answered.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("body", "kind", "status", "error"),
    [
        (b'{"policy": "best"}', "application/json", 422, "unknown policy 'best'"),
        (b'{"policy": 7}', "application/json", 422, "body: Expected `str`"),
        (b'{"policy": "lru", "now": 1}', "application/json", 422, "body: Object contains unknown field `now`"),
        (b"{}", "application/json; charset=utf-8", 422, "body: Object missing required field `policy`"),
        (b"lru", "application/json", 400, "body: JSON is malformed"),
        (
            b'{"policy": "lru"}',
            "text/plain",
            415,
            "Content-Type 'text/plain' is not supported: send ",
        ),
        (b'{"policy": "lru"}', "", 415, "Content-Type '' is not supported: send application/json"),
        (b" " * 2000, "application/json", 413, "the body is larger than 1024 bytes"),
    ],
)
def test_invalid_switch_is_reported_in_one_line(
    client: httpx.Client, city: MovingCity, body: bytes, kind: str, status: int, error: str
) -> None:
    rejected = client.post("/policy", content=body, headers={"Content-Type": kind})
    assert rejected.status_code == status
    assert rejected.json()["error"].startswith(error)
    assert city.switched == []


def test_paths_have_one_method_each(client: httpx.Client) -> None:
    assert client.post("/state.json").json() == {"error": "POST is not for this path"}
    assert client.get("/policy").status_code == 405
