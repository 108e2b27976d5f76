"""newsstand.toml: every mistake is reported with its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.settings_keys import keys_of

from newsstand.auth.api_tokens import new_token, token_lines
from newsstand.cluster.app_folder import (
    BadAppFile,
    ClusterSettings,
    KafkaLogSettings,
    PushCachingSettings,
    read_app,
)
from newsstand.cluster.query.parser import channel_table, parse_channel
from newsstand.config.types import byte_count, duration_s
from newsstand.errors import BadApp, BadOption

WHOLE = """
[datasets.emergencies]
fields = {id = "string", kind = "string", lat = "double", lon = "double", text = "string?"}

[datasets.shelters]
fields = {name = "string", lat = "double", lon = "double"}
key = "name"

[channels.by_kind]
query = "SELECT e.id, e.text FROM emergencies e WHERE e.kind = :kind"
parameters = {kind = "string"}

[defaults]
delivery = "push"

[cluster]
port = 9000
data = "kept"
results = "postgresql://somebody:unguessable@127.0.0.1/newsstand"
log = {kafka = "127.0.0.1:9092"}
max_body_bytes = "32 MiB"
away_after = "10m"

[spark]
"spark.sql.shuffle.partitions" = 4
"spark.ui.enabled" = true
"""


def write(folder: Path, text: str) -> Path:
    (folder / "newsstand.toml").write_text(text)
    return folder


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(BadAppFile) as caught:
        read_app(write(folder, text))
    place = f"{folder / 'newsstand.toml'}: "
    assert all(mistake.startswith(place) for mistake in caught.value.mistakes)
    return [mistake.removeprefix(place) for mistake in caught.value.mistakes]


def test_app_read_with_all_tables(tmp_path: Path) -> None:
    _, token = new_token("gate", ["publish:emergencies"], bytes(32))
    app = read_app(write(tmp_path, WHOLE + token_lines(token)))
    assert list(app.datasets) == ["emergencies", "shelters"]
    assert app.datasets["shelters"].key == "name"
    channel = app.channels["by_kind"]
    assert (channel.new, channel.delivery, channel.period_s) == ("emergencies", "push", None)
    assert app.tokens == (token,)
    assert app.cluster.port == 9000
    assert app.cluster.log == KafkaLogSettings("127.0.0.1:9092", "newsstand.")
    assert app.cluster.max_body_bytes == 32 * 2**20
    assert app.cluster.away_after_s == 600
    assert app.data == tmp_path / "kept"
    assert app.spark == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "true"}


def test_app_of_empty_file_has_defaults(tmp_path: Path) -> None:
    app = read_app(write(tmp_path, ""))
    assert (app.datasets, app.channels, app.tokens, app.cluster) == ({}, {}, (), ClusterSettings())


def test_password_hidden_in_repr(tmp_path: Path) -> None:
    assert "unguessable" not in repr(read_app(write(tmp_path, WHOLE)))


def test_mistakes_reported_all_at_once(tmp_path: Path) -> None:
    text = WHOLE.replace('lat = "double"', 'lat = "float"').replace("port = 9000", 'port = "x"\nprot = 1')
    found = mistakes(tmp_path, text + "[chanels.x]\n[[tokens]]\nname = 'gate'\n")
    assert found[0] == "chanels: is not known; did you mean 'channels'?"
    assert found[1].startswith("datasets.emergencies.fields.lat: unknown type 'float'")
    assert found[2].startswith("datasets.shelters.fields.lat: unknown type 'float'")
    assert found[3] == "tokens, number 1: missing sha256, scopes"
    assert found[4] == "cluster.prot: is not known; did you mean 'port'?"
    assert found[5] == "cluster.port: must be a whole number from 0 to 65535"
    assert len(found) == 6


def test_message_is_first_mistake_and_number_of_others(tmp_path: Path) -> None:
    write(tmp_path, "[clutser]\n[cluster]\nport = -1\n")
    with pytest.raises(BadAppFile, match=r"clutser: is not known; did you mean 'cluster'\? \(and 1 more: "):
        read_app(tmp_path)


def test_channel_does_not_repeat_mistake_of_dataset(tmp_path: Path) -> None:
    found = mistakes(tmp_path, WHOLE.replace('kind = "string", lat', 'kind = "strin", lat'))
    assert [one.split(":")[0] for one in found] == ["datasets.emergencies.fields.kind"]


def test_environment_overrides_file(tmp_path: Path) -> None:
    folder = write(tmp_path, "[cluster]\nport = 1\ncertificate = 'a.pem'\nkey = 'a.key'\n")
    given = {"PORT": "9", "OPEN_METRICS": "true", "MAX_BODY_BYTES": "1kB", "RESULTS": "postgresql://u:p@db/n"}
    app = read_app(folder, {f"NEWSSTAND_CLUSTER_{key}": value for key, value in given.items()})
    options = app.cluster
    assert (options.port, options.open_metrics, options.max_body_bytes) == (9, True, 1000)
    assert options.results == "postgresql://u:p@db/n"
    assert app.cluster.certificate == tmp_path / "a.pem"
    assert app.cluster.key == tmp_path / "a.key"
    with pytest.raises(BadAppFile, match="NEWSSTAND_CLUSTER_PORT: must be a whole number"):
        read_app(folder, {"NEWSSTAND_CLUSTER_PORT": "x"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[cluster]\nkey = 'x'", "cluster: certificate and key: give both or neither"),
        ("datasets = 1", "datasets: must be a table, written as [datasets]"),
        ("[datasets]\nx = 1", "datasets.x: must be a table, written as [datasets.x]"),
        ("channels = []", "channels: must be a table, written as [channels]"),
        ("[tokens]\nname = 'x'", "tokens: must be written as [[tokens]]"),
        ("[defaults]\ndelivry = 'push'", "defaults.delivry: is not known; did you mean 'delivery'?"),
        ("[cluster]\nhost = ''", "cluster.host: must be a string that is not empty"),
        ("[cluster]\nport = true", "cluster.port: must be a whole number from 0 to 65535"),
        ("[cluster]\nresults = 'mysql://x'", 'cluster.results: must be "sqlite" or the URL of a database, '),
        ("[cluster]\nlog = {kafka = '', prefix = 'a'}", "cluster.log: must be a string that is not empty"),
        ("[cluster]\nlog = 'kafka'", 'cluster.log: must be "files" or {kafka = "host:9092"'),
        ("[cluster]\nmax_body_bytes = 0", "cluster.max_body_bytes: must be a positive number of bytes"),
        ("[cluster]\naway_after = 'soon'", "cluster.away_after: must be a positive number of seconds"),
        (
            "[cluster]\nexecution_results = 0",
            "cluster.execution_results: must be a whole number from 1 to 2000000000",
        ),
        ("[cluster]\nopen_metrics = 1", "cluster.open_metrics: must be true or false"),
        ("[spark]\nmaster = 'x'", '[spark] master: a setting is written as "spark.some.key" = value'),
        ("[[tokens]]\nname='a'\nsha256='b'\nscopes=['read']", "tokens, number 1: sha256: must be 64 hexadecimal"),
        (
            f"[[tokens]]\nname='a'\nsha256='{'0' * 64}'\nscopes=['raed']",
            "tokens, number 1: scope 'raed' is none of admin, read, ",
        ),
    ],
)
def test_mistake_names_its_place(text: str, expected: str, tmp_path: Path) -> None:
    (mistake,) = mistakes(tmp_path, text)
    assert mistake.startswith(expected)


def test_token_names_are_unique(tmp_path: Path) -> None:
    lines = "".join(token_lines(new_token("gate", ["read"], bytes([n]) * 32)[1]) for n in (1, 2))
    assert mistakes(tmp_path, lines) == ["tokens, number 2: the name 'gate' is used twice"]


def test_duplicate_key_is_reported(tmp_path: Path) -> None:
    write(tmp_path, WHOLE + "[datasets.shelters]\n")
    with pytest.raises(BadApp, match=r"newsstand\.toml: is not TOML: Cannot declare .*shelters.* twice"):
        read_app(tmp_path)


def test_folder_without_app_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadApp, match="absent: no such folder"):
        read_app(tmp_path / "absent")
    with pytest.raises(BadApp, match=r"has no newsstand\.toml"):
        read_app(tmp_path)
    (tmp_path / "newsstand.toml").write_bytes(b"\xff")
    with pytest.raises(BadApp, match=r"newsstand\.toml: is not TOML"):
        read_app(tmp_path)


def test_push_disabled_by_default(tmp_path: Path) -> None:
    assert read_app(write(tmp_path, "")).push == PushCachingSettings(enabled=False)


def test_push_reads_every_key(tmp_path: Path) -> None:
    text = """
[push]
enabled = true
threshold = 50
pages = 20
period = "10m"
decay = 0.25
servers = 3
caching = "hops"
lookup = "miles"
lat = 40.71
lon = -74.01
node = "core"
links = [["core", "north"], ["core", "south"]]
seed = 7
"""
    push = read_app(write(tmp_path, text)).push
    links = (("core", "north"), ("core", "south"))
    assert push == PushCachingSettings(
        enabled=True,
        threshold=50.0,
        pages=20,
        period_s=600.0,
        decay=0.25,
        servers=3,
        caching="hops",
        lookup="miles",
        lat=40.71,
        lon=-74.01,
        node="core",
        links=links,
        seed=7,
    )
    assert set(re.findall(r"^(\w+) =", text, re.M)) == set(keys_of(PushCachingSettings))


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ('[coordinator]\nlinks = [["a", "b"]]\n[push]\nenabled = true', (("a", "b"),)),
        ('[coordinator]\nlinks = [["a", "b"]]\n[push]\nlinks = [["c", "d"]]', (("c", "d"),)),
        ('[coordinator]\nlinks = [["a", "b"]]\n[push]\nlinks = []', ()),
        ("[coordinator]\nport = 1\n[push]\nenabled = true", ()),
        ("[coordinator]\nlinks = 7\n[push]\nenabled = true", ()),
    ],
)
def test_push_takes_links_of_coordinator_by_default(
    text: str, links: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    assert read_app(write(tmp_path, text)).push.links == links


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("enable = true", "push.enable: is not known; did you mean 'enabled'?"),
        ("enabled = 1", "push.enabled: must be true or false"),
        ("threshold = -1", "push.threshold: must be a number from 0 to"),
        ("threshold = nan", "push.threshold: must be a number from 0 to"),
        ("pages = 0", "push.pages: must be a whole number from 1 to 1000"),
        ("period = 'soon'", "push.period: must be a positive number of seconds"),
        ("decay = 1", "push.decay: must be below 1"),
        ("decay = true", "push.decay: must be a number from 0 to 1"),
        ("servers = 0", "push.servers: must be a whole number from 1 to"),
        ("caching = 'near'", "push.caching: 'near' is none of nearest, hops, miles, random"),
        ("lookup = 3", "push.lookup: '3' is none of"),
        ("lat = 40.7", "push: lat and lon: give both or neither"),
        ("lat = 91\nlon = 0", "push.lat: must be a number from -90 to 90"),
        ("node = ''", "push.node: must be a string that is not empty"),
        ("links = [['a']]", "push.links: must be a list of pairs of nodes"),
        ("seed = -1", "push.seed: must be a whole number from 0 to"),
    ],
)
def test_push_mistake_names_its_place(line: str, expected: str, tmp_path: Path) -> None:
    (mistake,) = mistakes(tmp_path, f"[push]\n{line}")
    assert mistake.startswith(expected)


@pytest.mark.parametrize("key", keys_of(PushCachingSettings))
def test_push_keys_are_documented(key: str) -> None:
    reference = Path(__file__).parents[2] / "docs" / "reference" / "app-folder.md"
    table = reference.read_text().partition("## `[push]`")[2].partition("\n## ")[0]
    assert re.search(rf"^\|[^|]*`{key}`[^|]*\|", table, re.M)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("10s", 10), (10, 10), (0.5, 0.5), ("250ms", 0.25), ("5m", 300), ("1.5h", 5400), ("7 d", 604800)],
)
def test_duration_parsed(value: object, seconds: float) -> None:
    assert duration_s(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["", "10", "s", "-1s", -1, 0, True, None, "1e9d", "3 fortnights", float("nan"), float("inf")]
)
def test_duration_rejected_when_malformed(value: object) -> None:
    with pytest.raises(BadOption):
        duration_s(value)


@given(st.integers(1, 2**30), st.sampled_from([("B", 1), ("kB", 1000), ("KiB", 1024)]))
def test_byte_count_parsed_exactly(count: int, unit: tuple[str, int]) -> None:
    assert byte_count(f"{count} {unit[0]}") == count * unit[1]
    assert byte_count(count) == count


@pytest.mark.parametrize(
    ("bind", "mistake"),
    [
        ('{user = "subscriber"}', "channels.own.bind.user: no such parameter; the channel has: kind, level"),
        ('{kind = "group"}', "channels.own.bind.kind: unknown claim 'group'; one of subscriber"),
        (
            '{level = "subscriber"}',
            "channels.own.bind.level: the parameter is of type integer; a claim is a string",
        ),
        ('"subscriber"', 'channels.own.bind: must be a table such as {user = "subscriber"}'),
    ],
)
def test_binding_names_text_parameter_and_claim(tmp_path: Path, bind: str, mistake: str) -> None:
    (tmp_path / "newsstand.toml").write_text(
        '[datasets.reports]\nfields = {id = "string", kind = "string", level = "integer"}\n'
        '[channels.own]\nparameters = {kind = "string", level = "integer"}\n'
        'query = "SELECT r.id FROM reports r WHERE r.kind = :kind AND r.level = :level"\n'
        f"bind = {bind}\n"
    )
    with pytest.raises(BadAppFile) as raised:
        read_app(tmp_path)
    assert raised.value.mistakes == [f"{tmp_path / 'newsstand.toml'}: {mistake}"]


def test_binding_round_trips(tmp_path: Path) -> None:
    (tmp_path / "newsstand.toml").write_text(
        '[datasets.reports]\nfields = {id = "string", kind = "string"}\n'
        '[channels.own]\nparameters = {kind = "string"}\nbind = {kind = "subscriber"}\n'
        'query = "SELECT r.id FROM reports r WHERE r.kind = :kind"\n'
    )
    app = read_app(tmp_path)
    table = channel_table(app.channels["own"])
    assert parse_channel("own", table, app.datasets, {}) == app.channels["own"]
    assert table["bind"] == {"kind": "subscriber"}
