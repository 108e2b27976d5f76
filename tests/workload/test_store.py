from pathlib import Path

import pytest

from newsstand.errors import BadInput
from newsstand.workload.trace.files import TABLES
from newsstand.workload.trace.folder import new_folder


def fill(folder: Path, mark: str) -> None:
    for name in TABLES:
        (folder / f"{name}.csv").write_text(mark)


def test_folder_appears_only_when_complete(tmp_path: Path) -> None:
    with new_folder(tmp_path / "trace", force=False) as folder:
        fill(folder, "new")
        assert not (tmp_path / "trace").exists()
    assert (tmp_path / "trace" / "requests.csv").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


def test_failure_leaves_only_old_trace(tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    fill(tmp_path / "trace", "old")
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "trace", force=True) as folder:
        fill(folder, str(1 / 0))
    assert (tmp_path / "trace" / "requests.csv").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


def test_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    fill(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with new_folder(tmp_path / "link", force=True) as folder:
        fill(folder, "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "requests.csv").read_text() == "new"


def test_folder_without_trace_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    with pytest.raises(BadInput, match="is not a trace"), new_folder(tmp_path / "thesis", force=True):
        pass
