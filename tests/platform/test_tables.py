"""Coordinator and brokers in newsstand.toml, and the platform that `newsstand up` makes of them."""

from __future__ import annotations

import asyncio
import json
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from newsstand.auth.api_tokens import find_token
from newsstand.broker.sessions.rules import TopicRule, TopicRules
from newsstand.cli.data.connection import located_app
from newsstand.cli.main import run
from newsstand.cluster.app_folder import BadAppFile, read_app
from newsstand.config.settings import SubscriberLimits
from newsstand.errors import BadOption
from newsstand.platform.lifecycle import running
from newsstand.platform.processes import ListenAddress, Platform, Ports, plan
from newsstand.platform.supervisor import CannotStart
from newsstand.platform.tables import read_tables

EXAMPLES = Path(__file__).parents[2] / "examples"
WHOLE = """
[cluster]
port = 9100

[coordinator]
port = 9200
policy = "hops"
links = [["core", "north"], ["core", "south"]]

[[brokers]]
name = "north"
port = 9300
node = "north"
results_policy = "lscz"

[[brokers]]
name = "south"
node = "south"
certificate = "south.pem"
key = "south.key"
"""


def app(folder: Path, text: str) -> Path:
    (folder / "newsstand.toml").write_text(text)
    return folder


def planned(folder: Path, text: str, **how: object) -> Platform:
    app(folder, text)
    return plan(read_app(folder), read_tables(folder), **how)  # type: ignore[arg-type]


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(BadAppFile) as caught:
        read_tables(app(folder, text))
    return [one.removeprefix(f"{folder}/newsstand.toml: ") for one in caught.value.mistakes]


def test_platform_without_tables_has_one_coordinator_and_one_broker(tmp_path: Path) -> None:
    platform = planned(tmp_path, "")
    assert [part.name for stage in platform.stages for part in stage] == ["cluster", "coordinator", "broker edge"]
    assert [one.port for one in platform.listening] == [8780, 8770, 8790]


def test_parts_receive_their_tables_and_addresses_of_others(tmp_path: Path) -> None:
    platform = planned(tmp_path, WHOLE)
    assert [one.port for one in platform.listening] == [9100, 9200, 9300, 8791]
    message = {file.name + file.parent.name: tomllib.loads(text) for file, text in platform.settings.items()}
    data = tmp_path / "data"
    assert message["coordinator.tomlcoordinator"]["coordinator"] == {
        "data": str(data / "coordinator"),
        "port": 9200,
        "policy": "hops",
        "links": [["core", "north"], ["core", "south"]],
        "host": "127.0.0.1",
        "secret_file": str(data / "platform.secret"),
    }
    south = message["broker.tomlsouth"]["broker"]
    assert south["certificate"] == str(tmp_path / "south.pem")
    assert south["cluster"] == "http://127.0.0.1:9100"
    assert south["coordinator"] == "http://127.0.0.1:9200"
    assert south["token_file"] == str(data / "brokers" / "south" / "broker.token")
    assert platform.brokers[1].url == "https://127.0.0.1:8791"


def test_brokers_receive_allowed_hosts_of_pages(tmp_path: Path) -> None:
    text = '[pages]\nallow = ["10.0.0.0/8"]\n[[brokers]]\n[[brokers]]\npages_allow = ["a.example:80"]\n'
    platform = planned(tmp_path, text, brokers=3)
    message = [tomllib.loads(text).get("broker", {}).get("pages_allow") for text in platform.settings.values()]
    assert message == [None, ["10.0.0.0/8"], ["a.example:80"], ["10.0.0.0/8"]]


@pytest.mark.parametrize(
    ("count", "names"), [(None, ["north", "south"]), (1, ["north"]), (4, ["north", "south", "edge", "edge2"])]
)
def test_brokers_are_as_many_as_configured(tmp_path: Path, count: int | None, names: list[str]) -> None:
    assert list(planned(tmp_path, WHOLE, brokers=count).names) == names


def test_options_override_tables(tmp_path: Path) -> None:
    platform = planned(tmp_path, WHOLE, host="0.0.0.0", ports=Ports(9000, cluster=9999), data=tmp_path / "x")
    assert platform.listening[0] == ListenAddress("cluster", "0.0.0.0", 9999, "--cluster-port")
    assert [one.port for one in platform.listening[1:]] == [9000, 9020, 9021]
    assert platform.cluster.url == "http://127.0.0.1:9999"
    assert platform.folder.path == tmp_path / "x"


def test_free_ports_are_distinct(tmp_path: Path) -> None:
    ports = [one.port for one in planned(tmp_path, WHOLE, brokers=9, ports=Ports(0)).listening]
    assert len(set(ports)) == 11


def started(platform: Platform) -> str:
    """Start a platform whose cluster ends at once; return the error, with the last words of the cluster."""

    async def start() -> None:
        async with running(platform, lambda text: None, platform.app / "log"):
            pass

    with pytest.raises(CannotStart) as caught:
        asyncio.run(start())
    return str(caught.value)


@pytest.mark.processes
@pytest.mark.parametrize("before", [None, "http://127.0.0.1:2\n"])
def test_address_and_token_exist_before_cluster_is_ready(
    tmp_path: Path, before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NEWSSTAND_TOKEN", raising=False)
    address, data = tmp_path / "data" / "address", tmp_path / "data"
    if before:
        data.mkdir()
        address.write_text(before)
    show = f"import pathlib; print(pathlib.Path({str(address)!r}).read_text()); raise SystemExit(1)"
    platform = planned(tmp_path, "", ports=Ports(0), cluster_command=(sys.executable, "-c", show))
    assert platform.cluster.url in started(platform)
    assert (address.read_text() if address.exists() else None) == before
    assert find_token(data, None, None)


@pytest.mark.processes
def test_commands_find_platform_with_other_data_folder_while_it_runs(tmp_path: Path) -> None:
    located = f"located_app(pathlib.Path({str(tmp_path)!r})).data"
    seek = f"import pathlib; from newsstand.cli.data.connection import located_app; print({located})"
    command = (sys.executable, "-c", f"{seek}; raise SystemExit(1)")
    platform = planned(tmp_path, "", ports=Ports(0), data=tmp_path / "x", cluster_command=command)
    assert started(platform).endswith(f": {tmp_path / 'x'}")
    assert located_app(tmp_path).data == tmp_path / "data"
    assert list((tmp_path / "data").iterdir()) == []
    (tmp_path / "data" / "platform.path").write_text(f"{tmp_path / 'x'}\n")  # as after kill -9
    assert located_app(tmp_path).data == tmp_path / "data"


def test_ports_rejected_when_equal(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="coordinator: port 8780 is the port of cluster"):
        planned(tmp_path, "[coordinator]\nport = 8780")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("coordinator = 1", "coordinator: must be a table, written as [coordinator]"),
        ("[brokers]\nname = 'x'", "brokers: must be written as [[brokers]]"),
        ("[coordinator]\nprot = 1", "coordinator.prot: is not known; did you mean 'port'?"),
        ("[coordinator]\nport = 'x'", "coordinator.port: must be a whole number from 0 to 65535"),
        ("[coordinator]\nsecret = 'x'", "coordinator.secret: is decided by `newsstand up`; leave it out"),
        ("[coordinator]\nkey = 'x'", "coordinator: certificate and key: give both or neither"),
        (
            "[[brokers]]\nname = 'Edge'",
            "brokers, number 1: name: 'Edge' must be a lower-case letter, then ",
        ),
        ("[[brokers]]\nport = -1", "brokers, number 1: port: must be a whole number from 0 to 65535"),
        ("[[brokers]]\nprot = 1", "brokers, number 1: prot: is not known; did you mean 'port'?"),
        ("[[brokers]]\ntoken = 'x'", "brokers, number 1: token: is decided by `newsstand up`; leave it out"),
        ("pages = 1", "pages: must be a table, written as [pages]"),
        ("[pages]\nalow = []", "pages.alow: is not known; did you mean 'allow'?"),
        ("[pages]\nallow = 'a'", "pages.allow: must be a list of strings"),
        ("[pages]\nallow = ['http://a']", "pages.allow: 'http://a' is none of HOST, HOST:PORT and a network"),
        ("[[brokers]]\npages_allow = ['a:b']", "brokers, number 1: pages_allow: 'a:b' is none of HOST"),
        ("[[brokers]]\nlat = 1.0", "brokers, number 1: lat and lon: give both or neither"),
        (
            "[[brokers]]\nresults_policy = 'x'",
            "brokers, number 1: results_policy: unknown policy 'x' of result caches; known: nc, lru, ",
        ),
        (
            "[[brokers]]\npages_policy = 'x'",
            "brokers, number 1: pages_policy: unknown policy 'x' of page caches; known: gdstar, sub,",
        ),
        (
            "[[brokers]]\npages_policy = 'belady-size'",
            "brokers, number 1: pages_policy: unknown policy 'belady-size' of page caches; known: gdstar,",
        ),
        ("[[brokers]]\npages_push = 'x'", "brokers, number 1: pages_push: 'x' is none of needed, always"),
        ("[[brokers]]\nresults_expiry = 'x'", "brokers, number 1: results_expiry: 'x' is none of cache, object"),
        ("[coordinator]\npolicy = 'x'", "coordinator.policy: 'x' is none of hops, "),
        ("[coordinator]\nopportunistic_policy = 'x'", "coordinator.opportunistic_policy: "),
        ("[[brokers]]\n[[brokers]]\nname = 'edge'", "brokers, number 2: the name 'edge' is taken"),
    ],
)
def test_mistake_names_its_place(tmp_path: Path, text: str, message: str) -> None:
    (mistake,) = mistakes(tmp_path, text)
    assert mistake.startswith(message)


def test_check_reports_mistakes_of_all_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app(tmp_path, "[cluster]\nport = -1\n[coordinator]\nport = -1\n[[brokers]]\nport = -1\n")
    assert run(["check", str(tmp_path), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)["mistakes"]
    assert [one.split(": ")[1] for one in found] == ["cluster.port", "coordinator.port", "brokers, number 1"]


def test_check_distinguishes_wrong_option_from_mistake_of_app(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(EXAMPLES / "emergencies"), "--json", "--conf", "wrong"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("newsstand: --conf: 'wrong' must have the form")


def test_topic_rules_reach_all_brokers_without_groups(tmp_path: Path) -> None:
    rules = '[groups]\nstaff = ["bob", "ann"]\n[topics."news.*"]\npublish = ["@staff", "eve"]\nsubscribe = ["*"]\n'
    platform = planned(tmp_path, rules + "[[brokers]]\n[[brokers]]\n")
    message = [
        tomllib.loads(text)["broker"] for file, text in platform.settings.items() if file.name == "broker.toml"
    ]
    expected = {"news.*": {"publish": ["ann", "bob", "eve"], "subscribe": ["*"]}}
    assert [one["topics"] for one in message] == [expected, expected]


def test_emergencies_bind_channels_of_locations_to_subscriber() -> None:
    channels = read_app(EXAMPLES / "emergencies").channels.values()
    of_users = [one for one in channels if "locations" in one.query]
    assert len(of_users) == 3
    assert all(one.bind == (("user", "subscriber"),) for one in of_users)


def test_town_hall_permits_only_itself_to_warn() -> None:
    rules = TopicRules(
        {
            pattern: TopicRule(rule.get("publish", []), rule.get("subscribe", []))
            for pattern, rule in read_tables(EXAMPLES / "town-hall").topics.items()
        }
    )
    assert [rules.may_publish(one, "warnings") for one in ("town-hall", "ana")] == [True, False]
    assert rules.may_read("ana", "warnings")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            '[topics.news]\npublish = ["@staff"]',
            "topics.\"news\".publish: group '@staff' is not known; declare it in [groups]",
        ),
        ('[topics.news]\nread = ["ann"]', 'topics."news".read: is not known; known: publish, subscribe'),
        ('[topics.news]\npublish = "ann"', 'topics."news".publish: must be a list of names and groups, such as'),
        ('[topics.news]\npublish = ["a b"]', "topics.\"news\".publish: 'a b' cannot be the name of a subscriber"),
        ('[groups]\nstaff = "ann"', "groups.staff: must be a list of names of subscribers"),
        ("topics = 1", 'topics: must be a table, written as [topics."news.*"]'),
    ],
)
def test_topic_rules_mistake_is_reported_with_its_place(tmp_path: Path, text: str, mistake: str) -> None:
    with pytest.raises(BadAppFile) as raised:
        read_tables(app(tmp_path, text))
    assert [one.startswith(f"{tmp_path / 'newsstand.toml'}: {mistake}") for one in raised.value.mistakes] == [True]


@pytest.mark.parametrize("key", SubscriberLimits.__struct_fields__)
def test_limits_all_have_rows(key: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "app-folder.md").read_text()
    table = page.partition("\n## `[limits]`\n")[2].partition("\n## ")[0]
    default = next(one.default for one in msgspec.structs.fields(SubscriberLimits) if one.name == key)
    assert f"\n| `{key}` | {default:,} |" in table


def test_limits_reach_coordinator_and_brokers(tmp_path: Path) -> None:
    app = tmp_path / "newsstand.toml"
    app.write_text('[limits]\naccounts = 5\n[[brokers]]\nname = "own"\nlimits = {accounts = 7}\n[[brokers]]\n')
    made = plan(read_app(tmp_path), read_tables(tmp_path), data=tmp_path / "data", ports=Ports(0))
    by_part = {file.parent.name: tomllib.loads(text) for file, text in made.settings.items()}
    assert by_part["coordinator"]["coordinator"]["limits"] == {"accounts": 5}
    assert by_part["own"]["broker"]["limits"] == {"accounts": 7}
    assert by_part["edge2"]["broker"]["limits"] == {"accounts": 5}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[limits]\naccount = 5", "limits.account: is not known; did you mean 'accounts'?"),
        ('[limits]\naccounts = "many"', "limits.accounts: must be a whole number from 1 to 1099511627776"),
        ("[limits]\nsessions = 101", "limits.sessions: must be a whole number from 1 to 100"),
        ("[coordinator]\ntrusted_proxies = ['*']", "coordinator.trusted_proxies: '*' is neither an address"),
        ("[[brokers]]\ntrusted_proxies = ['*']", "brokers, number 1: trusted_proxies: '*' is neither an address"),
        (
            "[[brokers]]\nlimits = {sockets = 0}",
            "brokers, number 1: limits.sockets: must be a whole number from",
        ),
    ],
)
def test_limits_mistake_names_its_place(table: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "newsstand.toml").write_text(table)
    with pytest.raises(BadAppFile) as mistakes:
        read_tables(tmp_path)
    assert mistakes.value.mistakes[0].startswith(f"{tmp_path / 'newsstand.toml'}: {message}")
