"""What the commands print is safe for a terminal."""

import os
import sys

import pytest

from doap.cli.terminal import printable
from oracles.photos import write_photo


def test_control_characters_and_surrogates_are_escaped_and_other_text_is_kept():
    assert printable("\x1b]0;a\x07\x9b\x7f\udcff") == r"\x1b]0;a\x07\x9b\x7f\udcff"
    assert printable("größe\t×\nπ 图") == "größe\t×\nπ 图"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such file names")
def test_control_characters_of_an_image_name_do_not_reach_the_terminal(doap, tmp_path):
    (tmp_path / "photos").mkdir()
    write_photo(tmp_path / "photos" / "a.png", 0, 100, 120)
    (tmp_path / "photos" / "\x1b[2J.png").touch()
    ran = doap("extract", tmp_path / "photos", "--out", tmp_path / "features", "--descriptor", "sift")
    assert ran.returncode == 0
    assert r"\x1b[2J.png" in ran.stderr
    assert "\x1b" not in ran.stderr + ran.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such file names")
@pytest.mark.parametrize("command", [("extract",), ("data", "from-images")])
def test_an_image_name_that_is_not_utf8_is_one_line(doap, tmp_path, command):
    (tmp_path / "photos").mkdir()
    write_photo(tmp_path / "photos" / "a.png", 0, 100, 120)
    (tmp_path / "photos" / "a.png").rename(tmp_path / "photos" / os.fsdecode(b"\xff.png"))
    ran = doap(*command, tmp_path / "photos", "--out", tmp_path / "out")
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert r"\udcff.png: the file name is not UTF-8. Rename the image." in ran.stderr
