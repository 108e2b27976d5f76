"""Fixtures: a Kafka server for a module of tests, and a log with topics of its own for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from newsstand.cluster.log.kafka import KafkaLog
from support.cluster.kafka_server import KafkaServer

SERVERS = "NEWSSTAND_TEST_KAFKA"
"""The variable that names a server which runs already."""

_prefixes = (f"test{os.getpid()}x{number}." for number in itertools.count())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> str:
    running = os.environ.get(SERVERS)
    return running or str(request.getfixturevalue("server").servers)


@pytest.fixture
def opened(servers: str) -> Iterator[list[KafkaLog]]:
    logs = [KafkaLog(servers, next(_prefixes))]
    yield logs
    for log in logs:
        log.close()


@pytest.fixture
def log(opened: list[KafkaLog]) -> KafkaLog:
    return opened[-1]


@pytest.fixture
def reopen(opened: list[KafkaLog]) -> Callable[[], KafkaLog]:
    def again() -> KafkaLog:
        opened[-1].close()
        opened.append(KafkaLog(opened[-1].servers, opened[-1].prefix))
        return opened[-1]

    return again
