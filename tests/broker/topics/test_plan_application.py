"""`newsstand plan --apply` on a running platform: topics move towards their demand, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.broker.process import SECRET
from support.broker.topic_world import World, until, world

from newsstand.cli.lab.plan_apply import NotApplied, OperatorClient
from newsstand.cli.main import run
from newsstand.planning import methods
from newsstand.planning.methods import PlanningRequest, PlanningResult, run_method

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


@dataclass(frozen=True)
class Output:
    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Output]


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Command:
    """`newsstand plan`, in this process."""

    def command(*words: object) -> Output:
        code = run(["plan", *map(str, words)])
        return Output(code, *capsys.readouterr())

    return command


def network_file(folder: Path, demand: dict[str, list[int]]) -> Path:
    """Write the network of the line of brokers."""
    fields = {"nodes": 3, "edges": [[1, 2], [2, 3]], "names": [WEST, MIDDLE, EAST], "topics": demand}
    file = folder / "network.json"
    file.write_text(json.dumps(fields | {"replication": 1, "storage_capacity": 2}))
    return file


def test_plan_apply_moves_topics_to_demand(plan: Command, line: World, secret: Path, tmp_path: Path) -> None:
    line.placed(storms=[WEST], chess=[MIDDLE])
    with line.client(WEST) as ann, line.client(EAST) as eve:
        until(lambda: ann.publish("storms", "is it stored?")["stored"], "storms has a storage")
        for number in range(50):
            assert ann.publish("storms", number)["stored"]
        network = network_file(tmp_path, {"storms": [1, 0, 9]})
        to_it = ("--coordinator", line.coordinator.url, "--secret-file", secret)
        done = plan(network, *to_it, "--apply", "--json")
        assert done.returncode == 0, done.stderr
        output = json.loads(done.stdout)
        assert output["brokers"] == [WEST, MIDDLE, EAST]
        assert output["assignment"] == {"storms": [3]}
        applied = output["applied"]
        assert applied["moved"] == {"storms": {"to": [EAST], "from": [WEST]}}
        assert applied["complete"] == {"storms": [EAST]}
        assert applied["settled"]
        assert (applied["before"]["traffic"], applied["after"]["traffic"]) == (18, 2)
        storages = line.overlay()["storages"]
        assert storages["chess"]["wanted"] == [MIDDLE], "a topic that the plan does not name stays where it is"
        assert storages["storms"] == {"wanted": [EAST], "complete": [EAST], "leaving": []}
        assert [body for body in eve.past("topic = 'storms'") if body != "is it stored?"] == list(range(50))


def test_plan_apply_skips_unworthy_reassignment(plan: Command, line: World, secret: Path, tmp_path: Path) -> None:
    line.placed(storms=[MIDDLE])
    old = tmp_path / "old.json"
    old.write_text(json.dumps({"storages": [1, 2], "assignment": {"storms": [1]}, "brokers": [MIDDLE, EAST]}))
    network = network_file(tmp_path, {"storms": [5, 5, 6]})
    to_it = ("--coordinator", line.coordinator.url, "--secret-file", secret)
    done = plan(network, *to_it, "--from", old, "--apply", "--json")
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["assignment"] == {"storms": [2]}, "brokers are found by their names"
    assert not output["reassignment"]["worth_it"]
    assert "applied" not in output
    assert line.overlay()["storages"]["storms"]["wanted"] == [MIDDLE]


@pytest.mark.parametrize(
    ("words", "line_of_error"),
    [
        (["--apply"], "--apply: missing platform; give --coordinator URL and --secret-file FILE"),
        ([], "NETWORK: missing; give a network file, or --coordinator URL of a running platform"),
        (["--coordinator", "http://127.0.0.1:1"], "missing secret of the platform; give --secret-file FILE"),
        (["--coordinator", "http://127.0.0.1:1", "--secret-file", "SECRET"], "127.0.0.1:1: does not answer"),
    ],
)
def test_plan_apply_names_missing_option(
    plan: Command, secret: Path, words: list[str], line_of_error: str
) -> None:
    done = plan(*(str(secret) if word == "SECRET" else word for word in words))
    assert done.returncode != 0
    assert done.stdout == ""
    assert line_of_error in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_plan_apply_rejects_other_secret(plan: Command, line: World, tmp_path: Path) -> None:
    line.placed(storms=[WEST])
    other = tmp_path / "other"
    other.write_text("another secret that is long enough")
    network = network_file(tmp_path, {"storms": [0, 0, 9]})
    done = plan(network, "--coordinator", line.coordinator.url, "--secret-file", other, "--apply")
    assert done.returncode == 2
    assert "rejects the secret; give that of the platform with --secret-file" in done.stderr
    assert line.overlay()["storages"]["storms"]["wanted"] == [WEST]


def test_plan_of_platform_asks_for_demand(plan: Command, line: World, secret: Path) -> None:
    done = plan("--coordinator", line.coordinator.url, "--secret-file", secret)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "newsstand: --coordinator: missing demand, which no platform reports; give --demand DIR\n"
    )


def test_plan_apply_names_unknown_broker(plan: Command, line: World, secret: Path, tmp_path: Path) -> None:
    network = network_file(tmp_path, {"storms": [0, 0, 9]})
    network.write_text(network.read_text().replace(EAST, "atlantis"))
    done = plan(network, "--coordinator", line.coordinator.url, "--secret-file", secret, "--apply")
    assert done.returncode == 2
    assert "atlantis" in done.stderr


def test_plan_command_rejects_placement_changed_while_it_plans(
    line: World,
    secret: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plan: Command,
) -> None:
    line.placed(storms=[WEST])

    def change_then_plan(method: str, request: PlanningRequest) -> PlanningResult:
        line.placed(storms=[MIDDLE], chess=[EAST])
        return run_method(method, request)

    monkeypatch.setattr(methods, "run_method", change_then_plan)
    network = network_file(tmp_path, {"storms": [0, 0, 9]})
    done = plan(network, "--coordinator", line.coordinator.url, "--secret-file", secret, "--apply")
    assert done.returncode == 1
    assert "the placement of topics has changed while the plan was made" in done.stderr
    wanted = {topic: state["wanted"] for topic, state in line.overlay()["storages"].items()}
    assert wanted == {"storms": [MIDDLE], "chess": [EAST]}, "the other change is not lost"


def wanted(operator: OperatorClient) -> dict[str, list[str]]:
    """The brokers that shall store each topic."""
    return {topic: storages.wanted for topic, storages in operator.overlay().storages.items()}


def test_operator_client_rejects_outdated_placement(line: World, secret: Path) -> None:
    line.placed(storms=[WEST])
    operator = OperatorClient(line.coordinator.url, secret)
    before = operator.overlay()
    line.placed(storms=[WEST], chess=[EAST])
    with pytest.raises(NotApplied, match="the placement of topics has changed while the plan was made"):
        operator.place(before, {"storms": [EAST]})
    assert wanted(operator) == {"storms": [WEST], "chess": [EAST]}, "the other change is not lost"
    operator.place(operator.overlay(), {"storms": [EAST]})
    assert wanted(operator) == {"storms": [EAST], "chess": [EAST]}
