"""Atomic files: complete or absent."""

import pytest

from doap.files import atomic_write


def test_a_file_appears_only_when_it_is_complete(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_write(path) as unfinished:
        unfinished.write_text("half")
        assert not path.exists()
        unfinished.write_text("whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file_and_no_temporary_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail_halfway():
        with atomic_write(path) as unfinished:
            unfinished.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
