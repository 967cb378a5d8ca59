"""A file is whole or not there."""

import pytest

from doap.files import atomic_write


def test_a_file_appears_only_when_it_is_finished(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_write(path) as unfinished:
        unfinished.write_text("half")
        assert not path.exists()
        unfinished.write_text("whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_what_was_there_and_nothing_else(tmp_path):
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
