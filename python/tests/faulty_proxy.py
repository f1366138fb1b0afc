"""An HTTP proxy that gets in the way, between a client and an S3 server: in threads of the test's own process.

Faults by rate are spread by a seed: of every 1/rate requests one is struck, so that a rate of a tenth does fire within
ten requests, wherever it does. Besides those a test can strike one request, hold requests until it lets them go, refuse them, cut everything
off for a while, and slow everything down. Whatever was injected is counted: a test asserts that its faults fired.
"""

import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

_PIECE = 1 << 16
_RESET_AT_CLOSE = b"\1\0\0\0\0\0\0\0"  # struct linger: on, 0 seconds

# What a rate may be given for, and what happens then.
SLOW_DOWN = "503"  # the request is read and answered with 503 `SlowDown`; the server never sees it
RESET_REQUEST = "reset in the request"  # half of the body has gone to the server
RESET_RESPONSE = "reset in the response"  # the server has done what was asked, and half of its answer arrives
TRUNCATED = "truncated response"  # the same with an orderly end
FAULTS = (SLOW_DOWN, RESET_REQUEST, RESET_RESPONSE, TRUNCATED)


class Request(NamedTuple):
    """One request as it came; `fault` is what became of it, or empty."""

    method: str
    path: str
    fault: str


class _Cut(Exception):
    """This connection ends here, with a reset."""


class _Over(Exception):
    """This connection ends here, in order."""


@dataclass
class Hold:
    """Requests that wait until they are let go."""

    pattern: re.Pattern[str]
    waiting: int = 0
    gone: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        self.gone.set()


@dataclass
class _Head:
    """The first line and the headers of a message."""

    line: bytes
    headers: list[tuple[bytes, bytes]]

    def get(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key.lower() == name), b"")

    def bytes(self) -> bytes:
        lines = [self.line, *(key + b": " + value for key, value in self.headers)]
        return b"\r\n".join(lines) + b"\r\n\r\n"


def _read_head(stream: BinaryIO) -> _Head | None:
    line = stream.readline().strip()
    if not line:
        return None
    headers = []
    while pair := stream.readline().strip():
        key, _, value = pair.partition(b":")
        headers.append((key.strip(), value.strip()))
    return _Head(line, headers)


def _body(stream: BinaryIO, head: _Head) -> Iterator[bytes]:
    """The body as it comes, with the framing of its chunks where it has them."""
    if head.get(b"transfer-encoding").lower() == b"chunked":
        while True:
            line = stream.readline()
            size = int(line.split(b";")[0], 16)
            yield line + stream.read(size + 2)
            if size == 0:
                return
    left = int(head.get(b"content-length") or 0)
    while left:
        piece = stream.read(min(left, _PIECE))
        if not piece:
            raise _Cut
        left -= len(piece)
        yield piece


class FaultyProxy:
    """A proxy in front of a port of this machine."""

    def __init__(
        self,
        upstream: int,
        seed: int = 0,
        rates: Mapping[str, float] | None = None,
        bytes_per_second: float | None = None,
    ) -> None:
        self.injected: Counter[str] = Counter()
        self.requests: list[Request] = []
        self.bytes_per_second = bytes_per_second
        self._upstream = upstream
        self._random = random.Random(seed)
        self._rates = dict(rates or {})
        self._struck: dict[str, tuple[int, int]] = {}
        self._count = 0
        self._one = (0, "")
        self._first: tuple[re.Pattern[str], str] | None = None
        self.holds: list[Hold] = []
        self._refused: list[tuple[re.Pattern[str], int, str]] = []
        self._dark_until = 0.0
        self._free_at = 0.0
        self._lock = threading.Lock()
        self._pacing = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)

    def hold(self, pattern: str) -> Hold:
        """Requests whose `METHOD path` matches wait from now on, until the hold is released."""
        hold = Hold(re.compile(pattern))
        with self._lock:
            self.holds.append(hold)
        return hold

    def refuse(self, pattern: str, status: int = 403, code: str = "AccessDenied") -> None:
        """Requests whose `METHOD path` matches are answered with this error from now on."""
        with self._lock:
            self._refused.append((re.compile(pattern), status, code))

    def strike(self, rates: Mapping[str, float]) -> None:
        """From here on, these faults at these rates."""
        self._rates = dict(rates)

    def strike_one(self, number: int, fault: str) -> None:
        """The number-th request from here on gets this fault."""
        with self._lock:
            self._one = (self._count + number, fault)

    def strike_first(self, pattern: str, fault: str) -> None:
        """The first request from here on whose `METHOD path` matches gets this fault."""
        with self._lock:
            self._first = (re.compile(pattern), fault)

    def black_out(self, seconds: float) -> None:
        """Every connection is cut, and every new one, for so long."""
        self._dark_until = time.monotonic() + seconds
        self._cut_all()

    def seen(self, pattern: str) -> list[Request]:
        """The requests until now whose `METHOD path` matches."""
        wanted = re.compile(pattern)
        return [one for one in list(self.requests) if wanted.search(f"{one.method} {one.path}")]

    def close(self) -> None:
        self._closed = True
        for hold in self.holds:
            hold.release()
        # A thread that waits in accept() is not woken by a close alone.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._cut_all()
        for thread in list(self._threads):
            thread.join(10)
            assert not thread.is_alive(), "the proxy's threads end with it"

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _cut_all(self) -> None:
        with self._lock:
            sockets = list(self._open)
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        """One connection of a client, request after request."""
        upstream: socket.socket | None = None
        self._register(client)
        try:
            with client.makefile("rb", _PIECE) as requests:
                while (head := _read_head(requests)) is not None:
                    upstream = upstream or self._connect()
                    if not self._exchange(client, requests, head, upstream):
                        self._forget(upstream)
                        upstream = None
        except _Over:
            pass
        except (_Cut, OSError, ValueError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        finally:
            self._forget(client)
            if upstream is not None:
                self._forget(upstream)

    def _register(self, one: socket.socket) -> None:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open.add(one)

    def _forget(self, one: socket.socket) -> None:
        with self._lock:
            self._open.discard(one)
        one.close()

    def _connect(self) -> socket.socket:
        upstream = socket.create_connection(("127.0.0.1", self._upstream))
        self._register(upstream)
        return upstream

    def _exchange(self, client: socket.socket, requests: BinaryIO, head: _Head, upstream: socket.socket) -> bool:
        """One request and its answer. False: the server's connection is of no use any more."""
        method, path = head.line.decode().split(" ")[:2]
        fault = self._fault(method, path)
        with self._lock:
            self.requests.append(Request(method, path, fault))
            if fault:
                self.injected[fault] += 1
        if fault == "blackout":
            raise _Cut
        if head.get(b"expect").lower() == b"100-continue":
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head.headers = [pair for pair in head.headers if pair[0].lower() != b"expect"]
        if fault == SLOW_DOWN or fault.startswith("refused"):
            for _ in _body(requests, head):
                pass
            status, code = (503, "SlowDown") if fault == SLOW_DOWN else self._refusal(method, path)
            self._answer(client, method, status, code)
            return True
        self._wait_while_held(method, path)
        delivered = self._send_request(requests, head, upstream, fault)
        return self._send_response(client, method, upstream, fault) and delivered

    def _fault(self, method: str, path: str) -> str:
        """What becomes of this request: the first thing that applies."""
        if time.monotonic() < self._dark_until:
            return "blackout"
        status, code = self._refusal(method, path)
        if status:
            return f"refused with {status} {code}"
        with self._lock:
            self._count += 1
            if self._count == self._one[0]:
                return self._one[1]
            if self._first is not None and self._first[0].search(f"{method} {path}"):
                fault, self._first = self._first[1], None
                return fault
            struck = [fault for fault in FAULTS if self._rates.get(fault) and self._is_struck(fault)]
        return struck[0] if struck else ""

    def _is_struck(self, fault: str) -> bool:
        """Whether this request is the one of its block."""
        size = max(1, round(1 / self._rates[fault]))
        block = (self._count - 1) // size
        known, chosen = self._struck.get(fault, (-1, 0))
        if known != block:
            chosen = block * size + self._random.randrange(size)
            self._struck[fault] = (block, chosen)
        return self._count - 1 == chosen

    def _refusal(self, method: str, path: str) -> tuple[int, str]:
        with self._lock:
            refused = list(self._refused)
        return next(
            ((status, code) for wanted, status, code in refused if wanted.search(f"{method} {path}")),
            (0, ""),
        )

    def _wait_while_held(self, method: str, path: str) -> None:
        with self._lock:
            holds = [hold for hold in self.holds if hold.pattern.search(f"{method} {path}")]
            for hold in holds:
                hold.waiting += not hold.gone.is_set()
        for hold in holds:
            hold.gone.wait()

    def _pace(self, size: int) -> None:
        """Waits until so many bytes may pass: the link is shared by all connections."""
        if self.bytes_per_second is None:
            return
        with self._pacing:
            self._free_at = max(self._free_at, time.monotonic()) + size / self.bytes_per_second
            wait = self._free_at - time.monotonic()
        if wait > 0:
            time.sleep(wait)

    def _send_request(self, requests: BinaryIO, head: _Head, upstream: socket.socket, fault: str) -> bool:
        """Passes a request on. False: the server did not want all of it, and what it says comes all the same."""
        delivered = True
        half = int(head.get(b"content-length") or 0) // 2
        sent = 0
        if fault == RESET_REQUEST and half == 0:
            raise _Cut
        try:
            upstream.sendall(head.bytes())
        except OSError:
            delivered = False
        for piece in _body(requests, head):
            self._pace(len(piece))
            if fault == RESET_REQUEST and sent + len(piece) > half:
                with suppress(OSError):
                    upstream.sendall(piece[: half - sent])
                raise _Cut
            sent += len(piece)
            try:
                if delivered:
                    upstream.sendall(piece)
            except OSError:
                delivered = False
        return delivered

    def _send_response(self, client: socket.socket, method: str, upstream: socket.socket, fault: str) -> bool:
        with upstream.makefile("rb", _PIECE) as responses:
            head = _read_head(responses)
            if head is None:
                raise _Cut
            begin = head.bytes()
            status = int(head.line.split(b" ")[1])
            has_body = method != "HEAD" and status not in (204, 304)
            size = int(head.get(b"content-length") or 0) if has_body else 0
            cut = (len(begin) + size) // 2 if fault in (RESET_RESPONSE, TRUNCATED) else None
            sent = self._pass(client, begin, 0, cut, fault)
            if has_body:
                for piece in _body(responses, head):
                    self._pace(len(piece))
                    sent = self._pass(client, piece, sent, cut, fault)
        return head.get(b"connection").lower() != b"close"

    def _pass(self, client: socket.socket, piece: bytes, sent: int, cut: int | None, fault: str) -> int:
        if cut is None or sent + len(piece) <= cut:
            client.sendall(piece)
            return sent + len(piece)
        client.sendall(piece[: cut - sent])
        raise _Over if fault == TRUNCATED else _Cut

    @staticmethod
    def _answer(client: socket.socket, method: str, status: int, code: str) -> None:
        body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>on purpose</Message></Error>'
        text = (
            f"HTTP/1.1 {status} {code}\r\ncontent-type: application/xml\r\ncontent-length: {len(body)}\r\n\r\n"
            f"{'' if method == 'HEAD' else body}"
        )
        client.sendall(text.encode())


@contextmanager
def faulty_proxy(
    upstream: int, seed: int = 0, rates: Mapping[str, float] | None = None, bytes_per_second: float | None = None
) -> Iterator[FaultyProxy]:
    """A proxy that is closed at the end, whatever happens."""
    proxy = FaultyProxy(upstream, seed, rates, bytes_per_second)
    try:
        yield proxy
    finally:
        proxy.close()
