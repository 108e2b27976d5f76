"""The client SDK: subscribe, iterate over results, fetch pages, publish. It loads nothing of the servers.

    async with Client("http://127.0.0.1:8770", "ana", "a good password") as client:
        subscription = await client.subscribe("reports_near", kind="flood", lat=33.68, lon=-117.83)
        async for result in client.results(subscription):
            print(result.payload)

`SyncClient` and `SyncPublisher` are the same without asyncio.
"""

from newsstand.client.client import Client
from newsstand.client.http import Pace, new_http
from newsstand.client.models import (
    Channel,
    ClientError,
    Message,
    NamedPage,
    Page,
    PageLink,
    PublishReceipt,
    RequestRejected,
    ResourceNotFound,
    Result,
    ResultsRemoved,
    SessionEnded,
    Subscription,
    Suspension,
    Tokens,
    Unreachable,
    UsageError,
    WrongPassword,
)
from newsstand.client.publisher import Publisher
from newsstand.client.sync import SyncClient, SyncPublisher, SyncTopics
from newsstand.client.topics import Topics
from newsstand.wire.cluster import Receipt, Rejection

__all__ = [
    "Channel",
    "Client",
    "ClientError",
    "Message",
    "NamedPage",
    "Pace",
    "Page",
    "PageLink",
    "PublishReceipt",
    "Publisher",
    "Receipt",
    "Rejection",
    "RequestRejected",
    "ResourceNotFound",
    "Result",
    "ResultsRemoved",
    "SessionEnded",
    "Subscription",
    "Suspension",
    "SyncClient",
    "SyncPublisher",
    "SyncTopics",
    "Tokens",
    "Topics",
    "Unreachable",
    "UsageError",
    "WrongPassword",
    "new_http",
]
