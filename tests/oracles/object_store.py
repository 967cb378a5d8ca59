"""A real server of the S3 protocol on the loopback interface: rclone."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

KEY, SECRET = "loopback-test-key", "loopback-test-secret-0123456789"


def environment(port: int, host: str = "127.0.0.1") -> dict[str, str]:
    """Return the variables with which pyarrow finds the server."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(host: str, port: int) -> None:
    """Wait until a server accepts connections."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((host, port), 1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"{host}:{port} does not answer")


class Server:
    """The server. The subfolders of its folder are buckets."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder, self.host, self.port = folder, host, free_port()
        (folder / "bucket").mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        program = shutil.which("rclone")
        assert program is not None
        command = [program, "serve", "s3", "--auth-key", f"{KEY},{SECRET}", "--addr", f"{self.host}:{self.port}"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen([*command, str(self.folder)], stdout=quiet, stderr=quiet)
        wait_for(self.host, self.port)

    def kill(self) -> None:
        """Kill the server."""
        self.process.kill()
        self.process.wait()


class Proxy:
    """Passes connections on to a server; answers some of them with 503, and delays others."""

    def __init__(self, port: int, refuse: int = 0, delay: float = 0) -> None:
        self.refuse, self.delay, self.refused, self.target = refuse, delay, 0, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            if self.refused < self.refuse:
                self.refused += 1
                client.recv(1 << 16)
                client.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            time.sleep(self.delay)
            with socket.create_connection(("127.0.0.1", self.target)) as server:
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
