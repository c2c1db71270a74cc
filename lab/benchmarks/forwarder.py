"""A port that forwards to one of several API servers, like a load balancer before a control plane.

It forwards bytes unread: TLS ends at the API server.
"""

import contextlib
import socket
import threading

_CHUNK = 1 << 18


class Forwarder:
    """Forwards TCP connections; without a target at first."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._target: int | None = None
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, port: int | None) -> None:
        """Breaks every connection; new ones go to this port, or are refused if it is None."""
        with self._lock:
            self._target = port
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._flowing.set()

    def hold(self) -> None:
        """Holds back the API server's data until `lead_to` is called."""
        self._flowing.clear()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._target is None:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, held: bool) -> None:
        buffer = memoryview(bytearray(_CHUNK))
        with contextlib.suppress(OSError):
            while size := source.recv_into(buffer):
                if held:
                    self._flowing.wait()
                sink.sendall(buffer[:size])
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()
