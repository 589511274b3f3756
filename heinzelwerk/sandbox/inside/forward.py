"""Copy between TCP connections on loopback and unix sockets: an agent's way to its model, and to the turn's tools."""

import select
import socket

CHUNK = 65_536
HIGH_WATER = 4 * CHUNK
_LOOKS = 5


class Forwarder:
    """Copies between TCP connections on loopback and unix sockets, both ways, without threads.

    `peer_uid` restricts who may connect where the loopback device is shared with the whole machine.
    """

    def __init__(self, poll: select.poll, peer_uid: "int | None") -> None:
        self.poll = poll
        self.peer_uid = peer_uid
        self.targets: dict[int, tuple[socket.socket, str]] = {}
        self.ends: dict[int, End] = {}

    def listen(self, listener: socket.socket, target: str) -> None:
        """Forward what connects to `listener` to the unix socket `target`."""
        listener.setblocking(False)
        self.targets[listener.fileno()] = (listener, target)
        self.poll.register(listener, select.POLLIN)

    def ready(self, descriptor: int, events: int) -> None:
        """Do what poll says is possible."""
        if descriptor in self.targets:
            self._accept(*self.targets[descriptor])
        elif descriptor in self.ends:
            self._move(self.ends[descriptor], events)

    def _accept(self, listener: socket.socket, target: str) -> None:
        try:
            near, address = listener.accept()
        except OSError:
            return  # the other side gave up between poll and accept
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if self.peer_uid is not None and _uid_of(address[1], near.getsockname()[1]) != self.peer_uid:
                raise PermissionError
            far.connect(target)
        except OSError:
            near.close()
            far.close()
            return
        one, other = End(near), End(far)
        one.peer, other.peer = other, one
        for end in (one, other):
            end.socket.setblocking(False)
            self.ends[end.socket.fileno()] = end
            self.poll.register(end.socket, select.POLLIN)

    def _move(self, end: "End", events: int) -> None:
        try:
            if events & select.POLLOUT and end.outgoing:
                del end.outgoing[: end.socket.send(end.outgoing)]
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR) and end.reads():
                chunk = end.socket.recv(CHUNK)
                end.finished = not chunk
                end.peer.outgoing += chunk
        except BlockingIOError:
            pass
        except OSError:
            self._close(end)
            return
        for side in (end, end.peer):
            self._arm(side)
        if end.finished and end.peer.finished and not end.outgoing and not end.peer.outgoing:
            self._close(end)

    def _arm(self, end: "End") -> None:
        if end.peer.finished and not end.outgoing and not end.shut:
            end.shut = True
            try:
                end.socket.shutdown(socket.SHUT_WR)
            except OSError:
                end.finished = True  # it has gone: nothing more will come from there either
        wanted = (select.POLLIN if end.reads() else 0) | (select.POLLOUT if end.outgoing else 0)
        if wanted:
            self.poll.register(end.socket, wanted)
        else:
            try:
                self.poll.unregister(end.socket)  # a half-closed end reports POLLHUP without pause
            except KeyError:
                pass

    def _close(self, end: "End") -> None:
        for side in (end, end.peer):
            descriptor = side.socket.fileno()
            if self.ends.pop(descriptor, None) is not None:
                try:
                    self.poll.unregister(descriptor)
                except KeyError:
                    pass
                side.socket.close()


class End:
    """One socket of a pair, with the bytes that wait to be sent to it."""

    peer: "End"

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.outgoing = bytearray()
        self.finished = False
        self.shut = False

    def reads(self) -> bool:
        """Whether more may be read from it: not past its end, and not faster than the peer takes it."""
        return not self.finished and len(self.peer.outgoing) < HIGH_WATER


def _uid_of(port: int, listener: int) -> int:
    """The account behind the connection from this local port of 127.0.0.1 to that one (-1: not found).

    Both ports count: the kernel gives one local port to several connections that lead elsewhere. The table is no
    snapshot, so that a busy machine may skip a line: what is not found is looked for again.
    """
    near, far = f"0100007F:{port:04X}", f"0100007F:{listener:04X}"
    for _ in range(_LOOKS):
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            try:
                with open(table, encoding="ascii") as lines:
                    for line in lines:
                        columns = line.split()
                        if len(columns) > 7 and columns[1].endswith(near) and columns[2].endswith(far):
                            return int(columns[7])
            except OSError:
                continue
    return -1
