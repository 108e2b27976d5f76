"""`newsstand plan --apply` on a running platform: topics move to where they are asked for, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import NEWSSTAND, SECRET
from topic_world import World, until, world

WEST, MIDDLE, EAST = "b1", "b2", "b3"


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("planned"), (WEST, MIDDLE, EAST)) as made:
        yield made


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    return file


def plan(*words: object) -> subprocess.CompletedProcess[str]:
    command = [NEWSSTAND, "plan", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def network_file(folder: Path, demand: dict[str, list[int]]) -> Path:
    """The line of brokers, with names."""
    fields = {"nodes": 3, "edges": [[1, 2], [2, 3]], "names": [WEST, MIDDLE, EAST], "topics": demand}
    file = folder / "network.json"
    file.write_text(json.dumps(fields | {"replication": 1, "storage_capacity": 2}))
    return file


def test_topics_move_to_where_they_are_asked_for(line: World, secret: Path, tmp_path: Path) -> None:
    line.placed(storms=[WEST], chess=[MIDDLE])
    with line.client(WEST) as ann, line.client(EAST) as eve:
        until(lambda: ann.publish("storms", "is it stored?")["stored"], "storms has a storage")
        for number in range(50):
            assert ann.publish("storms", number)["stored"]
        network = network_file(tmp_path, {"storms": [1, 0, 9]})
        to_it = ("--coordinator", line.coordinator.url, "--secret-file", secret)
        done = plan(network, *to_it, "--apply", "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["brokers"] == [WEST, MIDDLE, EAST]
        assert told["assignment"] == {"storms": [3]}
        applied = told["applied"]
        assert applied["moved"] == {"storms": {"to": [EAST], "from": [WEST]}}
        assert applied["complete"] == {"storms": [EAST]}
        assert applied["settled"]
        assert (applied["before"]["traffic"], applied["after"]["traffic"]) == (18, 2)
        storages = line.overlay()["storages"]
        assert storages["chess"]["wanted"] == [MIDDLE], "a topic that the plan does not name stays where it is"
        assert storages["storms"] == {"wanted": [EAST], "complete": [EAST], "leaving": []}
        assert [body for body in eve.past("topic = 'storms'") if body != "is it stored?"] == list(range(50))


def test_what_is_not_worth_it_is_not_applied(line: World, secret: Path, tmp_path: Path) -> None:
    line.placed(storms=[MIDDLE])
    old = tmp_path / "old.json"
    old.write_text(json.dumps({"storages": [1, 2], "assignment": {"storms": [1]}, "brokers": [MIDDLE, EAST]}))
    network = network_file(tmp_path, {"storms": [5, 5, 6]})
    to_it = ("--coordinator", line.coordinator.url, "--secret-file", secret)
    done = plan(network, *to_it, "--from", old, "--apply", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["assignment"] == {"storms": [2]}, "brokers are found by their names"
    assert not told["reassignment"]["worth_it"]
    assert "applied" not in told
    assert line.overlay()["storages"]["storms"]["wanted"] == [MIDDLE]


@pytest.mark.parametrize(
    ("words", "line_of_error"),
    [
        (["--apply"], "--apply: to which platform? Give --coordinator URL and --secret-file FILE"),
        ([], "give a network file, or --coordinator URL for the brokers of a running platform"),
        (["--coordinator", "http://127.0.0.1:1"], "the platform's secret is needed, too: --secret-file FILE"),
        (["--coordinator", "http://127.0.0.1:1", "--secret-file", "SECRET"], "127.0.0.1:1: does not answer"),
    ],
)
def test_what_is_missing_is_named(secret: Path, words: list[str], line_of_error: str) -> None:
    done = plan(*(str(secret) if word == "SECRET" else word for word in words))
    assert done.returncode != 0
    assert done.stdout == ""
    assert line_of_error in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_another_secret_is_refused_and_nothing_changes(line: World, tmp_path: Path) -> None:
    line.placed(storms=[WEST])
    other = tmp_path / "other"
    other.write_text("another secret that is long enough")
    network = network_file(tmp_path, {"storms": [0, 0, 9]})
    done = plan(network, "--coordinator", line.coordinator.url, "--secret-file", other, "--apply")
    assert done.returncode == 2
    assert "has another secret than --secret-file" in done.stderr
    assert line.overlay()["storages"]["storms"]["wanted"] == [WEST]


def test_a_broker_that_the_platform_does_not_have_is_named(line: World, secret: Path, tmp_path: Path) -> None:
    network = network_file(tmp_path, {"storms": [0, 0, 9]})
    network.write_text(network.read_text().replace(EAST, "atlantis"))
    done = plan(network, "--coordinator", line.coordinator.url, "--secret-file", secret, "--apply")
    assert done.returncode == 2
    assert "atlantis" in done.stderr
