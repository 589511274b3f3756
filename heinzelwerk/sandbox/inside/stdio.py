"""Join stdin and stdout to 127.0.0.1:PORT: how an agent that starts its MCP servers by a command reaches ours.

Usage: stdio.py PORT. Ends when the other side closes; the end of stdin is passed on.
"""

import os
import socket
import sys
import threading


def _send_input(connection: socket.socket) -> None:
    try:
        while chunk := os.read(0, 65_536):
            connection.sendall(chunk)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the server has gone: the reading side sees it too, and ends


def main(port: int) -> None:
    """Copy both ways until the server closes."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        threading.Thread(target=_send_input, args=(connection,), daemon=True).start()
        while chunk := connection.recv(65_536):
            view = memoryview(chunk)
            while view:
                view = view[os.write(1, view) :]


if __name__ == "__main__":
    main(int(sys.argv[1]))
