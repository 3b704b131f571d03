"""A server on loopback that does whatever a test wants, also the worst."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[int, dict[str, Any]], Any]


def openai_reply(*texts: str, finish: str = "stop") -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": t}, "finish_reason": finish} for t in texts]}


def anthropic_reply(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}


def responses_reply(text: str) -> dict[str, Any]:
    return {"status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]}


class Server:
    """``script(number, body)`` gives a JSON object to send, or a word for something else: see ``_answer``."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.times: list[float] = []
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["content-length"]))
                with server.lock:
                    number = len(server.bodies)
                    server.times.append(time.monotonic())
                    server.bodies.append(json.loads(content))
                    server.headers.append({k.lower(): v for k, v in self.headers.items()})
                    server.paths.append(self.path)
                    server.in_flight += 1
                    server.most_in_flight = max(server.most_in_flight, server.in_flight)
                try:
                    _answer(self, server, server.script(number, server.bodies[number]))
                except OSError:
                    pass  # the client hung up, as some tests want it to
                finally:
                    with server.lock:
                        server.in_flight -= 1

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.block_on_close = False
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"


def _answer(handler: BaseHTTPRequestHandler, server: Server, wish: Any) -> None:
    status, headers, body = 200, {"Content-Type": "application/json"}, b""
    if isinstance(wish, tuple):
        status, more, said = wish
        headers |= more
        body = said.encode() if isinstance(said, str) else json.dumps(said).encode()
    elif wish == "drop":
        handler.close_connection = True
        handler.connection.close()
        return
    elif wish == "stall":
        server.closing.wait(20)
        return
    elif wish == "drip":  # a byte now and then: no single read ever takes long
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 10_000:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            if server.closing.wait(0.05):
                return
        return
    elif wish == "half":
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"choices": [{"mess')
        handler.close_connection = True
        return
    else:
        body = json.dumps(wish).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def serving(script: Script) -> Iterator[Server]:
    server = Server(script)
    thread = threading.Thread(target=server.http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.http.shutdown()
        server.http.server_close()
        thread.join()
