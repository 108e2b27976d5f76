"""A real Kafka server of one node on loopback ports, and Spark's connector, both from their jars.

The jars are fetched by Maven once and kept in Newsstand's cache. Where that cannot be done, tests are skipped.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from newsstand.spark.java import cache_folder, find_java, wrap_java

KAFKA = "4.1.0"
CONNECTORS = (("4.3.0", "4.3.0"), ("4.2.0", "4.2.0"), ("4.2.0", "4.0.0"))
"""Versions of the connector and of its token provider, best first: not every mirror has every one of them."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>jars</groupId><artifactId>jars</artifactId><version>1</version>
<packaging>pom</packaging>
<dependencyManagement><dependencies>{managed}</dependencies></dependencyManagement>
<dependencies>{wanted}</dependencies>
</project>"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
_CONFIGURATION = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
auto.create.topics.enable=false
num.network.threads=1
num.io.threads=2
"""


def kafka_jars() -> Path:
    """Return a folder with Kafka and what it depends on."""
    found = _fetched(f"kafka-{KAFKA}", _DEPENDENCY.format("org.apache.kafka", "kafka_2.13", KAFKA), "", ())
    return found or _skip(f"Maven cannot fetch Kafka {KAFKA}")


def connector_jars() -> Path:
    """Return a folder with Spark's Kafka source and those of its dependencies that Spark lacks."""
    connector, provider = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"
    for version, provided in CONNECTORS:
        wanted = _DEPENDENCY.format("org.apache.spark", connector, version)
        managed = _DEPENDENCY.format("org.apache.spark", provider, provided)
        only = (connector, provider, "kafka-clients", "commons-pool2")
        found = _fetched(f"connector-{version}-{provided}", wanted, managed, only)
        if found:
            return found
    return _skip("Maven cannot fetch Spark's Kafka connector")


def _fetched(name: str, wanted: str, managed: str, only: Sequence[str]) -> Path | None:
    folder = cache_folder() / "jars" / name
    if folder.is_dir():
        return folder
    if shutil.which("mvn") is None:
        _skip("no Maven (mvn) to fetch Kafka's jars with")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        (Path(scratch) / "pom.xml").write_text(_POM.format(wanted=wanted, managed=managed))
        command = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += ["-DoutputDirectory=jars", f"-DincludeArtifactIds={','.join(only)}"]
        if subprocess.run(command, cwd=scratch, capture_output=True, timeout=240, check=False).returncode:
            return None
        (Path(scratch) / "jars").rename(folder)
    return folder


def _skip(reason: str) -> Path:
    pytest.skip(reason)


class KafkaServer:
    """One Kafka server with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        self._jars = kafka_jars()
        self._folder = folder
        self._java = wrap_java(find_java(), cache_folder()) / "bin" / "java"
        self._process: subprocess.Popen[bytes] | None = None
        port, controller = _free_ports()
        self.servers = f"127.0.0.1:{port}"
        self._configuration = folder / "server.properties"
        self._configuration.write_text(_CONFIGURATION.format(port=port, controller=controller, folder=folder))
        format_it = ["format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", str(self._configuration)]
        subprocess.run(self._command("kafka.tools.StorageTool", *format_it), capture_output=True, check=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "output").open("ab") as output:
            command = self._command("kafka.Kafka", str(self._configuration))
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        patience = time.monotonic() + 60
        while self._process.poll() is None:
            try:
                AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(timeout=1)
                return
            except KafkaException:
                if time.monotonic() > patience:
                    break
        self.kill()
        raise RuntimeError(f"Kafka does not start: {(self._folder / 'output').read_text()[-2000:]}")

    def kill(self) -> None:
        """End it at once, as SIGKILL does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop its process for a while: it takes requests and answers none."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _command(self, main: str, *arguments: str) -> list[str]:
        memory = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [str(self._java), *memory, "-cp", f"{self._jars}/*", main, *arguments]


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
