"""Tokens: scopes that say what they mean, digests only, files that others cannot read."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.cluster.tokens import (
    Token,
    Tokens,
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
def test_a_scope_allows_what_it_says_and_nothing_else(
    scopes: list[str], action: str, name: str | None, may: bool
) -> None:
    _, token = new_token("somebody", scopes, ONES)
    assert token.may(action, name) is may


@given(st.text(max_size=12))
def test_a_name_from_outside_never_widens_a_scope(name: str) -> None:
    _, token = new_token("gate", ["publish:emergencies"], ONES)
    assert token.may("publish", name) is (name == "emergencies")


@pytest.mark.parametrize(
    "scope", ["", "root", "publish", "publish:", "publish:Emergencies", "broker:a*", "admin:x"]
)
def test_an_unknown_scope_is_refused(scope: str) -> None:
    with pytest.raises(BadApp, match="is none of admin, read, "):
        new_token("gate", [scope], ONES)


def test_a_token_without_scopes_or_digest_or_name_is_refused() -> None:
    with pytest.raises(BadApp, match="at least one of admin"):
        Token("gate", "0" * 64, frozenset())
    with pytest.raises(BadApp, match="64 hexadecimal digits"):
        Token("gate", "0" * 63, frozenset(["read"]))
    with pytest.raises(BadApp, match="name: must be"):
        Token('gate"\n', "0" * 64, frozenset(["read"]))


def test_the_holder_is_known_by_the_whole_token_only() -> None:
    first, gate = new_token("gate", ["publish:*"], ONES)
    second, other = new_token("other", ["read"], TWOS)
    tokens = Tokens([gate, other])
    assert tokens.holder(first) is gate
    assert tokens.holder(second) is other
    for wrong in ("", first[:-1], first + "0", first.upper(), gate.sha256, "\udc80", "ü"):
        assert tokens.holder(wrong) is None


def test_neither_the_token_nor_its_digest_is_told_by_accident() -> None:
    text, token = new_token("gate", ["read"], ONES)
    assert text not in repr(token)
    assert token.sha256 not in repr(token)


def test_the_lines_to_paste_make_the_same_token() -> None:
    _, token = new_token("the gate", ["read", "publish:emergencies"], ONES)
    (table,) = tomllib.loads(token_lines(token))["tokens"]
    assert Token(table["name"], table["sha256"], frozenset(table["scopes"])) == token


def test_the_clusters_own_token_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    made, new = admin_token(data, ONES)
    again, new_again = admin_token(data, TWOS)
    assert (new, new_again) == (True, False)
    assert made == again
    path = admin_token_path(data)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert digest_of(path.read_text().strip()) == made.sha256
    assert [file.name for file in data.iterdir()] == ["admin.token"]


def test_a_crash_while_the_token_is_written_leaves_no_half_of_it(tmp_path: Path) -> None:
    (tmp_path / "admin.new").write_text("newssta")
    made, new = admin_token(tmp_path, ONES)
    assert new
    assert find_token(tmp_path, None, None) == new_token("admin", ["admin"], ONES)[0]
    assert made.is_admin


def test_a_command_takes_the_file_then_the_environment_then_the_clusters_own(tmp_path: Path) -> None:
    admin_token(tmp_path, ONES)
    file = tmp_path / "gate.token"
    file.write_text("from-file\n")
    assert find_token(tmp_path, file, "from-environment") == "from-file"
    assert find_token(tmp_path, None, "from-environment\n") == "from-environment"
    assert digest_of(find_token(tmp_path, None, None)) == admin_token(tmp_path, TWOS)[0].sha256


def test_a_command_without_a_token_is_told_how_to_get_one(tmp_path: Path) -> None:
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
def test_a_data_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BadApp, match=r"admin\.token: cannot be written"):
        admin_token(tmp_path / "data", ONES)
