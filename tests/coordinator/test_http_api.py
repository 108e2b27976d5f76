"""The HTTP API of the coordinator: permissions, answers, rejected calls."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from support.coordinator.api import METRICS, OPERATOR, AsBrokers, ServedCoordinator, serving, subscriber_token
from support.coordinator.coordinators import SECRET

from newsstand.auth.credentials import SharedKeys, broker_credential
from newsstand.coordinator.api.context import Authenticator


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCoordinator]:
    with serving(tmp_path_factory.mktemp("coordinator"), lease_s=600.0, policy="least-loaded") as made:
        yield made


@pytest.fixture(scope="module")
def broker(served: ServedCoordinator) -> Iterator[httpx.Client]:
    """A client that asks as whichever broker a request is about."""
    with httpx.Client(base_url=served.url, auth=AsBrokers(), timeout=10, verify=False) as client:
        yield client


@pytest.fixture
def north(broker: httpx.Client) -> httpx.Client:
    """The same, with `north` and `south` registered and up."""
    for name in ("north", "south"):
        assert broker.put(f"/brokers/{name}", json={"url": f"http://127.0.0.1:9/{name}"}).status_code == 200
        assert broker.delete(f"/brokers/{name}/drain").status_code == 200
    return broker


BEAT = {"connections": 1, "subscribers": 1}
ALL = {"subscriber", "broker", "other", "operator", "metrics"}
EVERYBODY = {"nobody", "wrong", "foreign", *ALL}
PASSING = {"name": "new", "hash": "h", "broker": "passing"}
CALLS: list[tuple[str, str, object, set[str]]] = [
    ("PUT", "/brokers/{}", {"url": "http://127.0.0.1:9"}, {"broker"}),
    ("POST", "/brokers/{}/heartbeat", BEAT, {"broker"}),
    ("POST", "/brokers/{}/changes", [], {"broker"}),
    ("POST", "/brokers/{}/stale", {"epochs": {"ana": 1}}, {"broker"}),
    ("POST", "/brokers/{}/drain", None, {"broker", "operator"}),
    ("DELETE", "/brokers/{}/drain", None, {"broker", "operator"}),
    ("GET", "/brokers", None, {"broker", "other", "operator"}),
    ("DELETE", "/brokers/{}", None, {"broker", "operator"}),
    ("POST", "/subscribers", PASSING, {"broker"}),
    ("POST", "/subscribers/lookup", {"broker": "passing", "names": ["new"], "take": False}, {"broker"}),
    ("PUT", "/subscribers/{}", {"hash": "h", "epoch": 0}, {"broker"}),
    ("DELETE", "/subscribers/{}", None, {"broker", "operator"}),
    ("GET", "/subscribers", None, {"operator"}),
    ("GET", "/subscribers/{}", None, {"operator"}),
    ("PUT", "/subscribers/{}/disabled", None, {"operator"}),
    ("DELETE", "/subscribers/{}/disabled", None, {"operator"}),
    ("PUT", "/subscribers/{}/password", {"password": "long enough"}, {"operator"}),
    ("GET", "/overlay", None, {"broker", "other", "operator"}),
    ("PUT", "/overlay/storages", {"assignment": {"news": ["north"]}}, {"operator"}),
    ("GET", "/metrics", None, {"operator", "metrics"}),
    ("GET", "/broker", None, {"nobody", *ALL}),
    ("GET", "/healthz", None, EVERYBODY),
    ("GET", "/readyz", None, EVERYBODY),
    ("GET", "/openapi.json", None, EVERYBODY),
]
ANY = {"If-Match": "*"}
TOKENS = {
    "nobody": None,
    "wrong": "0" * 64,
    "foreign": subscriber_token("ana", "another secret of more than thirty-two letters"),
    "subscriber": subscriber_token("ana"),
    "broker": broker_credential(SECRET, "passing"),
    "other": broker_credential(SECRET, "north"),
    "operator": OPERATOR,
    "metrics": METRICS,
}


@pytest.mark.parametrize("who", TOKENS)
def test_routes_permit_only_their_callers(north: httpx.Client, who: str) -> None:
    headers = {"Authorization": "" if TOKENS[who] is None else f"Bearer {TOKENS[who]}"}
    epoch = 0
    for method, path, body, allowed in CALLS:
        north.put("/brokers/passing", json={"url": "http://127.0.0.1:9"})
        if path.startswith("/subscribers/{}"):
            north.delete("/subscribers/passing", headers={"Authorization": f"Bearer {OPERATOR}"})
            made = north.post("/subscribers", json={"name": "passing", "hash": "h", "broker": "passing"}).json()
            epoch = made["epoch"]
        given = {**body, "epoch": epoch} if isinstance(body, dict) and "epoch" in body else body
        conditions = {"If-Match": "*"} if path == "/overlay/storages" else {}
        answered = north.request(method, path.format("passing"), json=given, headers=headers | conditions)
        if who in allowed:
            assert answered.is_success, (method, path)
        elif who in ("nobody", "wrong", "foreign"):
            assert answered.status_code == 401, (method, path)
            assert answered.headers["WWW-Authenticate"] == "Bearer"
        else:
            assert answered.status_code == 403, (method, path)
        if answered.is_error:
            assert list(answered.json()) == ["error"]
    north.delete("/brokers/passing")


def test_routes_are_all_in_matrix(broker: httpx.Client) -> None:
    paths = broker.get("/openapi.json").json()["paths"]
    routes = {(method.upper(), path) for path, known in paths.items() for method in known}
    tried = {(method, path.replace("{}", "{name}")) for method, path, _, _ in CALLS}
    assert tried - routes == {("GET", "/openapi.json")}
    assert routes <= tried


def test_caller_is_known_only_by_token_signed_here() -> None:
    keys = Authenticator(SECRET)
    assert (keys.tokens.identify(subscriber_token("ana")) or [None])[0] == "ana"
    assert keys.tokens.identify(subscriber_token("ana", iss="somebody")) is None
    assert keys.tokens.identify(subscriber_token("../ana")) is None
    head, claims, _ = subscriber_token("ana").split(".")
    unsigned = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0"
    for forged in (f"{unsigned}.{claims}.", f"{head}.{claims}.", "", "a.b.c", "ä"):
        assert keys.tokens.identify(forged) is None
        assert keys.caller(forged) is None


def test_subscriber_from_creation_to_deletion(north: httpx.Client) -> None:
    body = {"name": "ana@example", "hash": "$argon2id$x", "broker": "north"}
    assert north.post("/subscribers", json=body).status_code == 201
    assert north.post("/subscribers", json=body).status_code == 201, "the answer may have been lost"
    assert north.post("/subscribers", json={**body, "hash": "y"}).status_code == 409
    changes = [
        {"op": "session", "name": "ana@example", "sid": "s", "generation": 2, "expires": 1500, "allow": None},
        {"op": "subscribe", "name": "ana@example", "id": "x", "channel": "near", "values": ["a", 1], "acked": 4},
        {"op": "ack", "name": "ana@example", "id": "x", "position": 9},
        {"op": "ack", "name": "ghost", "id": "x", "position": 9},
        {"op": "session", "name": "ana@example", "sid": "t", "generation": 0, "expires": 9},
        {"op": "end", "name": "ana@example", "sid": "t"},
        {"op": "subscribe", "name": "ana@example", "id": "y", "channel": "near", "values": [], "acked": 0},
        {"op": "unsubscribe", "name": "ana@example", "id": "y"},
    ]
    applied = north.post("/brokers/north/changes", json=changes).json()
    serial = applied.pop("serial")
    assert applied == {"applied": 7, "moved": ["ghost"], "late": ["ghost"]}
    ask = {"headers": {"Authorization": f"Bearer {subscriber_token('ana@example')}"}}
    found = north.get("/broker?lat=3&lon=4", **ask).json()
    assert found == {"broker": {"name": "north", "url": "http://127.0.0.1:9/north"}, "sticky": True}
    assert north.post("/brokers/north/drain").json()["state"] == "draining"
    assert north.get("/broker", **ask).json()["broker"]["name"] == "south"
    reply = north.post("/brokers/south/heartbeat", json=BEAT).json()
    assert reply["state"] == "up"
    assert "ana@example" in reply["adopt"]
    assert "ana@example" not in north.post("/brokers/north/heartbeat", json=BEAT).json()["moved"], "not yet"
    looked = north.post("/subscribers/lookup", json={"broker": "south", "names": ["ana@example"], "take": True})
    record = looked.json()["subscribers"]["ana@example"]
    epoch, born = record.pop("epoch"), record.pop("born")
    assert epoch > serial > born > 0
    assert record == {
        "name": "ana@example",
        "hash": "$argon2id$x",
        "sessions": {"s": {"generation": 2, "expires": 1500, "allow": None}},
        "subscriptions": {"x": {"channel": "near", "values": ["a", 1], "acked": 9, "version": 0}},
        "clock": 0,
        "disabled": False,
        "created": 0,
    }
    again = north.post("/brokers/south/heartbeat", json={**BEAT, "adopted": looked.json()["handovers"]}).json()
    assert "ana@example" not in again["adopt"]
    reply = north.post("/brokers/north/heartbeat", json=BEAT).json()
    assert reply["state"] == "draining"
    assert "ana@example" in reply["moved"]
    ended = north.post("/brokers/north/changes", json=[{"op": "end", "name": "ana@example", "sid": "s"}]).json()
    assert ended.pop("serial") >= reply["moved"]["ana@example"] > serial
    assert ended == {"applied": 1, "moved": ["ana@example"], "late": ["ana@example"]}, "an answered logout counts"
    assert "ana@example" in north.post("/brokers/south/heartbeat", json=BEAT).json()["adopt"], "to catch up"
    registered = north.put("/brokers/south", json={"url": "http://127.0.0.1:9/south"}).json()
    assert "ana@example" in registered.pop("subscribers")
    assert re.fullmatch("[0-9a-f]{16}", registered.pop("store"))
    assert registered.pop("serial") > serial
    assert [one["name"] for one in registered.pop("overlay")["links"]]
    assert registered.pop("keys") == msgspec.structs.asdict(SharedKeys.of(SECRET))
    assert registered == {"lease_s": 600.0, "heartbeat_s": 200.0, "state": "up", "held": []}


def test_lookup_changes_nothing_and_broker_in_maintenance_takes_no_subscribers(north: httpx.Client) -> None:
    north.post("/subscribers", json={"name": "bea", "hash": "h", "broker": "north"})
    ask = {"broker": "south", "names": ["bea", "ghost"], "take": False}
    read = north.post("/subscribers/lookup", json=ask).json()
    assert list(read) == ["subscribers", "elsewhere", "handovers"]
    assert (list(read["subscribers"]), read["elsewhere"]) == (["bea"], [])
    assert "bea" in north.put("/brokers/north", json={"url": "http://127.0.0.1:9/north"}).json()["subscribers"]
    north.post("/brokers/south/drain")
    refused = north.post("/subscribers/lookup", json={**ask, "take": True}).json()
    assert refused == {"subscribers": {}, "elsewhere": ["bea"], "handovers": {}}
    north.delete("/brokers/south/drain")
    taken = north.post("/subscribers/lookup", json={**ask, "take": True}).json()
    assert (list(taken["subscribers"]), taken["elsewhere"]) == (["bea"], [])
    assert "bea" not in north.post("/brokers/north/heartbeat", json=BEAT).json()["moved"]
    north.post("/brokers/south/heartbeat", json={**BEAT, "adopted": {**taken["handovers"], "never heard of": 1}})
    assert "bea" in north.post("/brokers/north/heartbeat", json=BEAT).json()["moved"]


def test_topic_moves_when_it_has_arrived(tmp_path: Path) -> None:
    with serving(tmp_path, lease_s=600.0) as served, httpx.Client(base_url=served.url, verify=False) as client:
        client.auth = AsBrokers()
        admin = {"Authorization": f"Bearer {OPERATOR}"}

        def beat(name: str, *stored: str) -> list[str]:
            reply = client.post(f"/brokers/{name}/heartbeat", json={**BEAT, "stored": stored}).json()
            topics: list[str] = reply["overlay"]["storage"]["topics"]
            return topics

        client.put("/brokers/a", json={"url": "http://127.0.0.1:1"})
        registered = client.put("/brokers/b", json={"url": "http://127.0.0.1:2"}).json()
        assert registered["overlay"] == {
            "version": 1,
            "links": [{"name": "a", "url": "http://127.0.0.1:1"}],
            "storage": {"version": 0, "topics": []},
            "opportunistic": {"policy": "sel-sub-prt", "slots": 1000},
        }
        placed = client.put("/overlay/storages", json={"assignment": {"news": ["a"]}}, headers=admin | ANY)
        assert placed.json() == client.get("/overlay").json()
        assert beat("a", "news") == ["news"]
        assert client.get("/overlay").json()["settled"]
        client.put("/overlay/storages", json={"assignment": {"news": ["b"]}}, headers=admin | ANY)
        assert (beat("a", "news"), beat("b")) == (["news"], ["news"])
        assert client.get("/overlay").json() == {
            "version": 1,
            "links": [["a", "b"]],
            "brokers": ["a", "b"],
            "storages": {"news": {"wanted": ["b"], "complete": ["a"], "leaving": ["a"]}},
            "placement": client.get("/overlay").headers["ETag"].strip('"'),
            "settled": False,
        }
        assert 'newsstand_coordinator_topics{progress="moving"} 1.0' in client.get("/metrics", headers=admin).text
        assert (beat("b", "news"), beat("a", "news")) == (["news"], [])
        assert client.get("/overlay").json()["settled"]
        for assignment, said in (
            ({"news": ["ghost"]}, "ghost"),
            ({"a\n": ["a"]}, "a topic is"),
            ({"": ["a"]}, "key"),
        ):
            refused = client.put("/overlay/storages", json={"assignment": assignment}, headers=admin | ANY)
            assert refused.status_code == 422
            assert said in refused.json()["error"]


def test_placement_is_replaced_only_in_version_read(tmp_path: Path) -> None:
    with serving(tmp_path, lease_s=600.0) as served, httpx.Client(base_url=served.url, verify=False) as client:
        client.auth = AsBrokers()
        admin = {"Authorization": f"Bearer {OPERATOR}"}

        def place(broker: str, condition: dict[str, str]) -> httpx.Response:
            body = {"assignment": {"news": [broker]}}
            return client.put("/overlay/storages", json=body, headers=admin | condition)

        for name in ("a", "b"):
            client.put(f"/brokers/{name}", json={"url": "http://127.0.0.1:1"})
        before = client.get("/overlay")
        assert before.headers["ETag"] == f'"{before.json()["placement"]}"'
        missing = place("a", {})
        assert (missing.status_code, missing.json()["error"][:19]) == (428, "If-Match is missing")
        first, second = (place(name, {"If-Match": before.headers["ETag"]}) for name in ("a", "b"))
        assert first.status_code == 200
        assert second.status_code == 412, "it was read before the first one changed it"
        assert before.json()["placement"] in second.json()["error"]
        assert first.json()["placement"] in second.json()["error"]
        assert client.get("/overlay").json()["storages"]["news"]["wanted"] == ["a"]
        client.post("/brokers/a/heartbeat", json={**BEAT, "stored": ["news"]})
        third = place("b", {"If-Match": f'"another", {first.headers["ETag"]}'})
        assert third.status_code == 200, "the progress of brokers does not change the version"
        assert place("b", ANY).headers["ETag"] == third.headers["ETag"]


def test_brokers_are_listed_by_page(north: httpx.Client) -> None:
    names = [one["name"] for one in north.get("/brokers").json()["brokers"]]
    reply: list[str] = []
    after: str | None = ""
    while after is not None:
        page = north.get("/brokers", params={"limit": 1, "after": after}).json()
        reply += [one["name"] for one in page["brokers"]]
        after = page["next"]
    assert reply == names == sorted(names)
    assert len(names) > 0
    assert north.get("/brokers", params={"limit": 10_001}).status_code == 422


def test_broker_list_shows_states(north: httpx.Client) -> None:
    north.put(
        "/brokers/south", json={"url": "http://127.0.0.1:9", "lat": 1, "lon": 2, "node": "n", "capacity": 50}
    )
    north.post("/brokers/south/heartbeat", json={"connections": 5, "subscribers": 7})
    (south,) = [one for one in north.get("/brokers").json()["brokers"] if one["name"] == "south"]
    assert 0 < south.pop("lease_s") <= 600
    assert south.pop("assigned") >= 0
    assert south.pop("load") >= 0.1
    assert south == {
        **{"name": "south", "url": "http://127.0.0.1:9", "lat": 1, "lon": 2, "node": "n", "capacity": 50},
        **{"state": "up", "connections": 5, "subscribers": 7},
    }


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("PUT", "/brokers/North", {"url": "http://127.0.0.1:9"}, 422, "path name"),
        ("PUT", "/brokers/x", {"url": "ftp://127.0.0.1"}, 422, "url"),
        ("PUT", "/brokers/x", {"url": "http://me:pw@127.0.0.1"}, 422, "url"),
        ("PUT", "/brokers/x", {"url": "http://127.0.0.1:99999"}, 422, "url"),
        ("PUT", "/brokers/x", {"url": "http://127.0.0.1", "lat": 91, "lon": 0}, 422, "lat"),
        ("PUT", "/brokers/x", {"url": "http://127.0.0.1", "lat": 1}, 422, "both or neither"),
        ("PUT", "/brokers/x", {"url": "http://127.0.0.1", "capacity": 0}, 422, "capacity"),
        ("PUT", "/brokers/x", {"url": "http://127.0.0.1", "colour": "red"}, 422, "colour"),
        ("POST", "/brokers/ghost/heartbeat", BEAT, 404, "ghost"),
        ("POST", "/brokers/north/heartbeat", {"connections": -1, "subscribers": 0}, 422, "connections"),
        ("POST", "/brokers/ghost/changes", [], 404, "ghost"),
        ("POST", "/brokers/north/changes", [{"op": "explode", "name": "x"}], 422, "explode"),
        ("POST", "/brokers/north/changes", [{"op": "end", "name": "x", "sid": "s", "z": 1}], 422, "z"),
        ("POST", "/subscribers", {"name": "a b", "hash": "h", "broker": "north"}, 422, "name"),
        ("POST", "/subscribers", {"name": "ab\n", "hash": "h", "broker": "north"}, 422, "name"),
        ("POST", "/subscribers", {"name": "ab", "hash": "h", "broker": "ghost"}, 404, "ghost"),
        ("POST", "/subscribers/lookup", {"broker": "ghost", "names": [], "take": True}, 404, "ghost"),
        ("POST", "/subscribers/lookup", {"broker": "north", "names": ["a"] * 5001}, 422, "names"),
        ("GET", "/broker?lat=91&lon=0", None, 422, "lat"),
        ("GET", "/broker?lat=nan&lon=0", None, 422, "lat"),
        ("GET", "/broker?lat=1", None, 422, "both or neither"),
        ("GET", "/broker?policy=best", None, 422, "policy"),
        ("DELETE", "/brokers/ghost", None, 404, "ghost"),
        ("POST", "/brokers/ghost/drain", None, 404, "ghost"),
        ("PATCH", "/brokers", None, 405, "PATCH"),
    ],
)
def test_mistakes_are_rejected_in_one_line(
    north: httpx.Client, method: str, path: str, body: object, status: int, said: str
) -> None:
    answered = north.request(method, path, json=body)
    assert answered.status_code == status
    assert said in answered.json()["error"]


def test_body_rejected_when_too_large_or_not_json(north: httpx.Client) -> None:
    assert north.put("/brokers/x", content=b"x" * 70_000).status_code == 413
    assert north.put("/brokers/x", content=b"{").status_code == 400
    assert north.put("/brokers/x", content=b"{}", headers={"Content-Encoding": "gzip"}).status_code == 415


def test_changes_by_the_thousand_are_one_quick_call(north: httpx.Client) -> None:
    north.post("/subscribers", json={"name": "many", "hash": "h", "broker": "north"})
    changes: list[object] = [
        {"op": "subscribe", "name": "many", "id": f"x{n}", "channel": "near", "values": [n], "acked": 0}
        for n in range(5000)
    ]
    changes += [{"op": "ack", "name": "many", "id": f"x{n}", "position": n} for n in range(5000)]
    answered = north.post("/brokers/north/changes", json=changes)
    assert {**answered.json(), "serial": 0} == {"applied": 10_000, "moved": [], "late": [], "serial": 0}
    assert answered.elapsed.total_seconds() < 5


def test_metrics_count_states_and_contain_no_names(north: httpx.Client) -> None:
    north.get("/nowhere/at/all")
    text = north.get("/metrics", headers={"Authorization": f"Bearer {METRICS}"}).text
    assert 'newsstand_coordinator_brokers{state="up"}' in text
    assert 'newsstand_coordinator_moves_total{reason="draining"}' in text
    assert 'route="/brokers/{name}"' in text
    assert "north" not in text
    assert "nowhere" not in text


def test_selection_without_brokers_is_empty_and_missing_store_is_reported(tmp_path: Path) -> None:
    with serving(tmp_path, open_metrics=True) as served, httpx.Client(base_url=served.url, verify=False) as client:
        answered = client.get("/broker")
        assert (answered.status_code, answered.headers["Retry-After"]) == (503, "1")
        assert client.get("/metrics").status_code == 200
        assert client.get("/readyz").json() == {"status": "ready"}
        served.store.close()
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200


def test_death_is_noticed_without_calls(tmp_path: Path) -> None:
    with serving(tmp_path, lease_s=0.8) as served, httpx.Client(base_url=served.url, verify=False) as client:
        client.auth = AsBrokers()
        client.put("/brokers/a", json={"url": "http://127.0.0.1:9"})
        client.post("/subscribers", json={"name": "ana", "hash": "h", "broker": "a"})
        adopt: list[str] = []
        deadline = time.monotonic() + 15
        while not adopt and time.monotonic() < deadline:
            time.sleep(0.05)
            answered = client.post("/brokers/b/heartbeat", json=BEAT)
            if answered.status_code == 404:
                client.put("/brokers/b", json={"url": "http://127.0.0.1:9"})
            else:
                adopt = answered.json()["adopt"]
        assert adopt == ["ana"]
