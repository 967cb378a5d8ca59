"""`scripts/data` downloads listed files, verifies their checksums, and keeps nothing that is wrong."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from oracles.interpreter import run_python

ROOT = Path(__file__).parents[2]
CONTENT = {"a+b.txt": b"first", "sub/c.txt": b"second"}


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def sets(tmp_path: Path) -> Iterator[Path]:
    """TOML file of one set, which a server on this machine publishes."""
    published = tmp_path / "published"
    for name, content in CONTENT.items():
        (published / name).parent.mkdir(parents=True, exist_ok=True)
        (published / name).write_bytes(content)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(published)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    lines = ["[letters]", 'content = "Letters"', 'licence = "CC0"', 'folder = "letters"']
    lines += [f'url = "http://127.0.0.1:{server.server_port}/"', "[letters.files]"]
    lines += [f'"{name}" = "{hashlib.sha256(content).hexdigest()}"' for name, content in CONTENT.items()]
    (tmp_path / "sets.toml").write_text("\n".join(lines))
    yield tmp_path / "sets.toml"
    server.shutdown()
    thread.join()
    server.server_close()


def data(*arguments: str | Path) -> CompletedProcess[str]:
    return run_python(ROOT / "scripts" / "data", *arguments, fails=True)


def stored(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_missing_files_are_downloaded_once(sets: Path, tmp_path: Path) -> None:
    done = data(tmp_path / "data", "letters", "--sets", sets)
    assert (done.returncode, done.stderr) == (0, "")
    assert stored(tmp_path / "data" / "letters") == CONTENT
    assert done.stdout.count("\n") == 3
    assert data(tmp_path / "data", "all", "--sets", sets).stdout.count("\n") == 1


def test_a_file_with_another_checksum_is_refused_and_not_kept(sets: Path, tmp_path: Path) -> None:
    (tmp_path / "published" / "a+b.txt").write_bytes(b"changed")
    done = data(tmp_path / "data", "letters", "--sets", sets)
    assert done.returncode == 1
    assert "expected SHA-256" in done.stdout
    assert stored(tmp_path / "data" / "letters") == {"sub/c.txt": b"second"}


def test_a_file_that_the_server_lacks_is_reported(sets: Path, tmp_path: Path) -> None:
    (tmp_path / "published" / "a+b.txt").unlink()
    done = data(tmp_path / "data", "letters", "--sets", sets)
    assert (done.returncode, done.stderr) == (1, "")
    assert "404" in done.stdout


def test_verifying_downloads_nothing(sets: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "letters").mkdir(parents=True)
    (tmp_path / "data" / "letters" / "a+b.txt").write_bytes(b"changed")
    done = data(tmp_path / "data", "letters", "--verify", "--sets", sets)
    assert done.returncode == 1
    assert [line.rsplit(": ", 1)[1] for line in done.stdout.splitlines()] == ["wrong checksum", "missing"]
    assert stored(tmp_path / "data" / "letters") == {"a+b.txt": b"changed"}


def test_unknown_names_are_refused(sets: Path, tmp_path: Path) -> None:
    done = data(tmp_path / "data", "numbers", "--sets", sets)
    assert done.returncode == 2
    assert "expected names of sets (letters) or all, got numbers" in done.stderr


def test_the_listed_sets_have_fixed_addresses() -> None:
    done = data()
    assert done.returncode == 0
    assert done.stdout.startswith("oxford ")


@pytest.mark.data("oxford_affine", "hpatches_tasks", "weights_tfeat")
def test_the_checksums_are_those_of_the_files_of_the_tests(data_folder: Path) -> None:
    done = data(data_folder, "oxford", "hpatches-tasks", "tfeat", "featurebooster", "hardtfeat", "--verify")
    assert done.returncode == 0, done.stdout
