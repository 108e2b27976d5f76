"""Calls that tests make at a broker's API as a subscriber."""

from __future__ import annotations

import time

import httpx
from websockets.sync.client import connect

PASSWORD = "correct horse battery"


def login(url: str, name: str, allow: object = None) -> httpx.Client:
    client = httpx.Client(base_url=url, timeout=20, verify=False)  # no TLS here
    assert client.post("/subscribers", json={"name": name, "password": PASSWORD}).status_code in (201, 409)
    body = {"name": name, "password": PASSWORD} | ({} if allow is None else {"allow": allow})
    answer = client.post("/login", json=body)
    assert answer.status_code == 200, answer.text
    client.headers["Authorization"] = f"Bearer {answer.json()['access']}"
    return client


def subscribe(client: httpx.Client, channel: str = "of_kind", **values: object) -> dict[str, object]:
    answer = client.post("/subscriptions", json={"channel": channel, "values": values})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def sockets(client: httpx.Client):  # type: ignore[no-untyped-def]
    url = str(client.base_url).replace("http", "ws", 1) + "/notifications"
    return connect(url, additional_headers={"Authorization": client.headers["Authorization"]})


def read(client: httpx.Client, subscription: dict[str, object], **query: object) -> dict[str, object]:
    answer = client.get(f"/subscriptions/{subscription['id']}/results", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def until_head(client: httpx.Client, subscription: dict[str, object], head: int) -> None:
    for _ in range(200):
        if client.get(f"/subscriptions/{subscription['id']}").json()["head"] >= head:
            return
        time.sleep(0.05)
    raise AssertionError(f"the stream has not come to {head}")
