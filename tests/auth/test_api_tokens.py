"""ApiTokens: exact scopes, digests only, private files."""

from __future__ import annotations

import os
import stat
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.auth.api_tokens import (
    ApiToken,
    ApiTokens,
    admin_token,
    admin_token_path,
    digest_of,
    find_token,
    new_token,
    token_lines,
)
from newsstand.errors import BadApp, BadOption

ONES, TWOS = b"\x01" * 32, b"\x02" * 32


@pytest.mark.parametrize(
    ("scopes", "action", "name", "may"),
    [
        (["admin"], "publish", "emergencies", True),
        (["admin"], "broker", "north", True),
        (["admin"], "read", None, True),
        (["admin"], "admin", None, True),
        (["publish:emergencies"], "publish", "emergencies", True),
        (["publish:emergencies"], "publish", "shelters", False),
        (["publish:*"], "publish", "shelters", True),
        (["publish:*"], "broker", "north", False),
        (["publish:*"], "read", None, False),
        (["publish:*"], "admin", None, False),
        (["broker:north"], "broker", "north", True),
        (["broker:north"], "broker", "northern", False),
        (["broker:*", "read"], "broker", "south", True),
        (["broker:*", "read"], "read", None, True),
        (["read"], "publish", "*", False),
        (["read"], "admin", None, False),
    ],
)
def test_scope_permits_exactly_what_it_names(scopes: list[str], action: str, name: str | None, may: bool) -> None:
    _, token = new_token("somebody", scopes, ONES)
    assert token.may(action, name) is may


@given(st.text(max_size=12))
def test_scope_is_never_widened_by_foreign_name(name: str) -> None:
    _, token = new_token("gate", ["publish:emergencies"], ONES)
    assert token.may("publish", name) is (name == "emergencies")


@pytest.mark.parametrize(
    "scope", ["", "root", "publish", "publish:", "publish:Emergencies", "broker:a*", "admin:x"]
)
def test_scope_rejected_when_unknown(scope: str) -> None:
    with pytest.raises(BadApp, match="is none of admin, read, "):
        new_token("gate", [scope], ONES)


def test_token_rejected_without_scopes_digest_or_name() -> None:
    with pytest.raises(BadApp, match="at least one of admin"):
        ApiToken("gate", "0" * 64, frozenset())
    with pytest.raises(BadApp, match="64 hexadecimal digits"):
        ApiToken("gate", "0" * 63, frozenset(["read"]))
    with pytest.raises(BadApp, match="name: must be"):
        ApiToken('gate"\n', "0" * 64, frozenset(["read"]))


def test_holder_is_known_only_by_whole_token() -> None:
    first, gate = new_token("gate", ["publish:*"], ONES)
    second, other = new_token("other", ["read"], TWOS)
    tokens = ApiTokens([gate, other])
    assert tokens.holder(first) is gate
    assert tokens.holder(second) is other
    for wrong in ("", first[:-1], first + "0", first.upper(), gate.sha256, "\udc80", "ü"):
        assert tokens.holder(wrong) is None


def test_repr_contains_neither_token_nor_digest() -> None:
    text, token = new_token("gate", ["read"], ONES)
    assert text not in repr(token)
    assert token.sha256 not in repr(token)


def test_printed_lines_configure_same_token() -> None:
    _, token = new_token("the gate", ["read", "publish:emergencies"], ONES)
    (table,) = tomllib.loads(token_lines(token))["tokens"]
    assert ApiToken(table["name"], table["sha256"], frozenset(table["scopes"])) == token


def test_cluster_token_is_created_once_and_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    made, new = admin_token(data, ONES)
    again, new_again = admin_token(data, TWOS)
    assert (new, new_again) == (True, False)
    assert made == again
    path = admin_token_path(data)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert digest_of(path.read_text().strip()) == made.sha256
    assert [file.name for file in data.iterdir()] == ["admin.token"]


def test_cluster_token_is_one_for_all_that_start_together(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def start(number: int, data: Path) -> tuple[ApiToken, bool]:
        together.wait()
        return admin_token(data, bytes([number]) * 32)

    with ThreadPoolExecutor(8) as pool:
        for attempt in range(20):
            data = tmp_path / str(attempt)
            made = list(pool.map(start, range(8), [data] * 8))
            assert len({token for token, _ in made}) == 1
            assert [is_new for _, is_new in made].count(True) == 1
            assert [file.name for file in data.iterdir()] == ["admin.token"]


def test_cluster_token_is_complete_or_absent_after_crash(tmp_path: Path) -> None:
    (tmp_path / ".admin.token.new").write_text("newssta")
    made, new = admin_token(tmp_path, ONES)
    assert new
    assert find_token(tmp_path, None, None) == new_token("admin", ["admin"], ONES)[0]
    assert made.is_admin


def test_command_prefers_file_then_environment_then_cluster_token(tmp_path: Path) -> None:
    admin_token(tmp_path, ONES)
    file = tmp_path / "gate.token"
    file.write_text("from-file\n")
    assert find_token(tmp_path, file, "from-environment") == "from-file"
    assert find_token(tmp_path, None, "from-environment\n") == "from-environment"
    assert digest_of(find_token(tmp_path, None, None)) == admin_token(tmp_path, TWOS)[0].sha256


def test_command_without_token_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(
        BadOption, match=r"no token: pass --token-file FILE or set NEWSSTAND_TOKEN, and there is no "
    ):
        find_token(tmp_path, None, None)
    with pytest.raises(BadOption, match=r"--token-file .*absent: cannot be read \(No such file"):
        find_token(tmp_path, tmp_path / "absent", None)
    two = tmp_path / "two"
    two.write_text("one two\n")
    with pytest.raises(BadOption, match="must hold one token and nothing else"):
        find_token(tmp_path, two, None)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_unwritable_data_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BadApp, match=r"admin\.token: cannot be written"):
        admin_token(tmp_path / "data", ONES)


def test_unwritable_admin_token_is_named(tmp_path: Path) -> None:
    (tmp_path / ".admin.token.new").mkdir()
    with pytest.raises(BadApp, match=r"admin\.token: cannot be written"):
        admin_token(tmp_path, ONES)
    assert [file.name for file in tmp_path.iterdir()] == [".admin.token.new"]
