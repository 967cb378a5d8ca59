"""What the commands print is safe for a terminal."""

import os
import sys

import pytest

from doap.cli.terminal import printable
from oracles.photos import write_photo


def test_control_characters_and_surrogates_are_escaped_and_other_text_is_kept():
    assert printable("\x1b]0;a\x07\x9b\x7f\udcff") == r"\x1b]0;a\x07\x9b\x7f\udcff"
    assert printable("größe\t×\nπ 图") == "größe\t×\nπ 图"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such file names")
def test_names_of_images_reach_the_terminal_without_control_characters(doap, tmp_path):
    write_photo(tmp_path / "photos" / "a.png", 0, 100, 120)
    (tmp_path / "photos" / "\x1b[2J.png").touch()
    command = ("extract", tmp_path / "photos", "--out", tmp_path / "features", "--descriptor", "sift")
    ran = doap(*command)
    assert ran.returncode == 0
    assert r"\x1b[2J.png" in ran.stderr
    assert "\x1b" not in ran.stderr + ran.stdout
    (tmp_path / "photos" / "a.png").rename(tmp_path / "photos" / os.fsdecode(b"\xff.png"))
    ran = doap(*command)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert r"\udcff.png: the file name is not UTF-8. Rename the image." in ran.stderr
