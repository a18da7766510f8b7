"""What is told of a new directory that could not be written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rmqctl.engine.files.newdirectory import new_directory
from rmqctl.errors import CannotWrite

FULL = "No space left on device"


@pytest.mark.parametrize("is_kept", [False, True])
def test_an_error_of_a_file_inside_names_the_directory(tmp_path: Path, is_kept: bool) -> None:
    place = tmp_path / "new"
    with pytest.raises(CannotWrite) as caught, new_directory(place, is_kept=is_kept) as building:
        (building / "commitlog").mkdir()
        raise CannotWrite(path=str(building / "commitlog" / "0"), reason=FULL)
    assert caught.value.path == str(place)
    assert building.exists() is is_kept
    goes_on = f"; what is written stays in {building}, and the same command continues it"
    assert caught.value.reason == FULL + goes_on * is_kept


def test_an_error_of_another_place_stays_what_it_is(tmp_path: Path) -> None:
    other = str(tmp_path / "source")
    with pytest.raises(CannotWrite) as caught, new_directory(tmp_path / "new"):
        raise CannotWrite(path=other, reason=FULL)
    assert (caught.value.path, caught.value.reason) == (other, FULL)


def test_a_refusal_of_another_place_is_not_one_of_the_new_directory(tmp_path: Path) -> None:
    """As of a file that is copied, and has gone."""
    with pytest.raises(FileNotFoundError) as caught, new_directory(tmp_path / "new"):
        (tmp_path / "source").stat()
    assert Path(caught.value.filename) == tmp_path / "source"
    assert not list(tmp_path.iterdir())


def test_a_directory_that_could_not_be_made_continues_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotWrite) as told, new_directory(tmp_path / "file/new", is_kept=True):
        pass
    assert "continues" not in str(told.value)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left"),
            "No space left on device",
        ),
        (OSError(errno.EMFILE, "Failed to open"), "Too many open files"),
        (OSError("Failed"), "Failed"),
    ],
)
def test_a_librarys_words_for_an_error_of_the_system_are_not_told(
    tmp_path: Path, error: OSError, told: str
) -> None:
    """For those of the system the next step is known."""
    with pytest.raises(CannotWrite) as caught, new_directory(tmp_path / "new"):
        raise error
    assert caught.value.reason == told
