"""New directories appear whole or not at all, and nothing of anybody else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.errors import CannotWrite, OutputExists
from rmqctl.operations.mend.rebuild import plan_rebuild
from rmqctl.spark.procedures import rebuilding
from rmqctl.spark.session import session
from rmqctl.spark.session.staging import (
    BESIDE,
    OutputInUse,
    in_new_directory,
    is_remote,
    remove_abandoned,
)
from tests.test_operations.small_store import CONFIG, make_small_store


def beside(place: Path) -> Path:
    return place.with_name(place.name + BESIDE)


def test_a_directory_appears_when_it_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "above" / "new"
    for exists in (False, True):
        if exists:
            place.mkdir(parents=True)
        with in_new_directory(str(place)) as building:
            assert Path(building) == beside(place) and place.exists() is exists
            (Path(building) / "file").write_text("whole")
        assert (place / "file").read_text() == "whole" and not beside(place).exists()
        (place / "file").unlink()
        place.rmdir()


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt), in_new_directory(str(place)) as building:
        (Path(building) / "half").write_text("")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CannotWrite, match="No space"), in_new_directory(str(place)):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def late(place: Path) -> Path:
    """What a task writes after the directory that it writes to was given up and removed."""
    with pytest.raises(KeyboardInterrupt), in_new_directory(str(place)) as building:
        raise KeyboardInterrupt
    (Path(building) / "_temporary" / "0").mkdir(parents=True)
    return Path(building)


def test_what_a_task_writes_too_late_is_removed_when_the_session_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "new"

    def start(master: str, conf: object) -> tuple[object, object]:
        return None, lambda: late(place)

    monkeypatch.setattr(session, "_start", start)
    with session.session("local[1]"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_tasks_of_a_rebuild_write_too_late_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, output = make_small_store(tmp_path / "store"), tmp_path / "new"

    def given_up(spark: object, plan: object, place: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rmqctl.spark.mend.rebuild.build", given_up)
    with pytest.raises(KeyboardInterrupt):
        rebuilding.run(None, plan_rebuild(store, CONFIG, "all"), output)  # type: ignore[arg-type]
    (beside(output) / "consumequeue").mkdir(parents=True)
    remove_abandoned()
    assert list(tmp_path.iterdir()) == [store]


def test_what_somebody_else_builds_there_stays(tmp_path: Path) -> None:
    given_up = late(tmp_path / "new")
    with in_new_directory(str(tmp_path / "new")) as building:
        assert Path(building) == given_up
        (given_up / "half").write_text("")
        remove_abandoned()
        assert (given_up / "half").exists()
    assert (tmp_path / "new" / "half").exists()


@pytest.mark.parametrize("what", ["file", "full directory", "link", "dangling link"])
def test_what_is_there_stays(what: str, tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "new", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if what == "file":
        place.write_text("kept")
    elif what == "full directory":
        place.mkdir()
        (place / "kept").write_text("")
    else:
        place.symlink_to(elsewhere if what == "link" else tmp_path / "nowhere")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputExists), in_new_directory(str(place)):
        raise AssertionError("nothing is built")
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_kill_left_is_removed_and_links_in_it_are_not_followed(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "new", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("")
    (beside(place) / "below").mkdir(parents=True)
    (beside(place) / "below/old").write_text("")
    (beside(place) / "old").write_text("")
    (beside(place) / "link").symlink_to(elsewhere)
    with in_new_directory(str(place)) as building:
        assert list(Path(building).iterdir()) == []
    assert list(place.iterdir()) == []
    assert (elsewhere / "kept").exists()


def test_who_builds_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "new"
    with in_new_directory(str(place)) as building:
        (Path(building) / "mine").write_text("")
        with pytest.raises(OutputInUse), in_new_directory(str(place)):
            raise AssertionError("nothing is built")
        assert (Path(building) / "mine").exists()
    assert (place / "mine").exists()
    # A link in place of the directory beside it is nobody's.
    beside(tmp_path / "other").symlink_to(tmp_path)
    with pytest.raises(CannotWrite), in_new_directory(str(tmp_path / "other")):
        raise AssertionError("nothing is built")
    assert (place / "mine").exists()


@pytest.mark.parametrize(
    ("path", "remote"),
    [("s3://b/k", True), ("hdfs://n/p", True), ("file:///a", False), ("/a", False), ("a:b", False)],
)
def test_other_file_systems(path: str, remote: bool) -> None:
    assert is_remote(path) is remote
    if remote:
        with in_new_directory(path) as building:
            assert building == path
