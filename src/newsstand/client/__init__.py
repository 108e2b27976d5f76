"""The client SDK: subscribe, iterate over results, fetch pages, publish. It loads nothing of the servers.

    async with Client("http://127.0.0.1:8770", "ana", "a good password") as client:
        subscription = await client.subscribe("reports_near", kind="flood", lat=33.68, lon=-117.83)
        async for result in client.results(subscription):
            print(result.payload)

`SyncClient` and `SyncPublisher` are the same without asyncio.
"""

from newsstand.client.calls import new_http
from newsstand.client.client import Client
from newsstand.client.errors import (
    ClientError,
    Gone,
    Misused,
    NotThere,
    Refused,
    SessionEnded,
    Unreachable,
    WrongPassword,
)
from newsstand.client.nouns import (
    Channel,
    Message,
    NamedPage,
    Page,
    PageLink,
    Published,
    Receipt,
    Refusal,
    Result,
    Subscription,
    Suspension,
    Tokens,
)
from newsstand.client.pace import Pace
from newsstand.client.publisher import Publisher
from newsstand.client.sync import SyncClient, SyncPublisher
from newsstand.client.sync_topics import SyncTopics
from newsstand.client.topics import Topics

__all__ = [
    "Channel",
    "Client",
    "ClientError",
    "Gone",
    "Message",
    "Misused",
    "NamedPage",
    "NotThere",
    "Pace",
    "Page",
    "PageLink",
    "Published",
    "Publisher",
    "Receipt",
    "Refusal",
    "Refused",
    "Result",
    "SessionEnded",
    "Subscription",
    "Suspension",
    "SyncClient",
    "SyncPublisher",
    "SyncTopics",
    "Tokens",
    "Topics",
    "Unreachable",
    "WrongPassword",
    "new_http",
]
