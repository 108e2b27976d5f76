"""The table `[storages]` of an app: which brokers keep the past of which topics, until somebody says otherwise."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import httpx

from newsstand.cluster.app_folder import unknown
from newsstand.errors import BadOption
from newsstand.model import is_topic
from newsstand.platform.folder import PlatformFolder

Storages = Mapping[str, list[str]]
PATIENCE_S = 30.0
"""How long brokers may take to be known to the coordinator."""


def storage_mistakes(storages: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with the table, but for names of brokers."""
    for topic, brokers in storages.items():
        if not is_topic(topic):
            yield f"storages: {topic!r}: a topic is 1 to 256 characters without control characters"
        if not isinstance(brokers, list) or not brokers or not all(isinstance(one, str) for one in brokers):
            yield f'storages.{topic}: must be a list of brokers, such as ["edge"]'


def require_brokers(file: Path, storages: Storages, brokers: Collection[str]) -> None:
    """Raise BadOption if a topic is to be at a broker that is not there."""
    for topic, names in storages.items():
        for name in names:
            if name not in brokers:
                raise BadOption(f"{file}: storages.{topic}: broker '{name}' {unknown(name, brokers)}")


async def place(coordinator: str, trusted: ssl.SSLContext, folder: PlatformFolder, storages: Storages) -> None:
    """Tell the coordinator where topics are kept, unless it was told before, as soon as it knows the brokers."""
    headers = {"Authorization": f"Bearer {folder.operator_token('up')}"}
    until = asyncio.get_running_loop().time() + PATIENCE_S
    async with httpx.AsyncClient(
        base_url=coordinator, headers=headers, timeout=5, verify=trusted, trust_env=False
    ) as http:
        while True:
            try:
                told = (await http.get("/overlay")).raise_for_status().json()
                wanted = {name for names in storages.values() for name in names}
                if told["storages"]:
                    return
                if wanted <= set(told["brokers"]):
                    (await http.put("/overlay/storages", json={"assignment": storages})).raise_for_status()
                    return
                why = "a broker is not registered yet"
            except httpx.HTTPError as error:
                why = f"the coordinator does not take them ({error})"
            if asyncio.get_running_loop().time() > until:
                raise BadOption(f"storages: {why}, after {PATIENCE_S:.0f} s")
            await asyncio.sleep(0.1)
