"""A TCP proxy in a thread whose connections can be cut, as networks do."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

_RESET = struct.pack("ii", 1, 0)


class Cuttable:
    """`cut` resets all connections; while `away` is set nothing gets through. An answer that holds
    `breaks_at` is cut off there, once."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[socket.socket] = []
        self.away = False
        self.breaks_at: bytes | None = None
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        for end in self._pairs:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # Wakes the thread that reads from it.
                end.shutdown(socket.SHUT_RD)
                end.close()
        self._pairs.clear()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                down, _ = self._listener.accept()
                if self.away:
                    down.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    down.close()
                    continue
                up = socket.create_connection(("127.0.0.1", self._target))
                self._pairs += [down, up]
                for source, sink in ((down, up), (up, down)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.breaks_at is not None and self.breaks_at in data:
                    sink.sendall(data[: data.index(self.breaks_at)])
                    self.breaks_at = None
                    self.cut()
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def cuttable(url: str) -> Iterator[Cuttable]:
    proxy = Cuttable(int(url.rsplit(":", 1)[1]))
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
