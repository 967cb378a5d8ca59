"""A real Milvus server for tests and benchmarks, in processes of its own.

python milvus_server.py FOLDER PORT     starts it, prints port and process id, and stops it when stdin is closed
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


class MilvusServer:
    """A server whose data are in a folder; it ends with this process at the latest.

    Attributes:
        uri: Address of the server.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, 0
        self.start()

    def start(self) -> None:
        """Start the server, at the same address as before."""
        command = [sys.executable, __file__, str(self._folder), str(self._port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._port, self._server = map(int, self._process.stdout.readline().split())
        self.uri = f"http://127.0.0.1:{self._port}"

    def kill(self) -> None:
        """Kill the server, like `kill -9`."""
        os.kill(self._server, signal.SIGKILL)
        self.close()

    def cpu_seconds(self) -> float:
        """Return the processor time that the server has used."""
        fields = Path(f"/proc/{self._server}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Stop the server."""
        self._process.communicate()


def serve(folder: str, port: int) -> None:
    from milvus import MilvusServer, MilvusServerConfig

    class Config(MilvusServerConfig):  # type: ignore[misc]
        def try_bind_port(self, port: int) -> socket.socket | None:
            # Connections to a killed server keep its port for a minute otherwise.
            found = socket.socket()
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                found.close()
                return None
            return found

    settings = {"data_dir": folder, "log_level": "error", **({"proxy_port": port} if port else {})}
    server = MilvusServer(Config(**settings))
    server.start()
    print(server.listen_port, server.server_proc.pid, flush=True)  # noqa: T201
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
