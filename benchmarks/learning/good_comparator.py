"""A comparator that always answers as the task's gold does, behind the generic remote format on loopback.

A run asks it like any other remote model: ``comparator_policy=api``, with the item's data and the agent's index in the
request. So the remote path is in the measurement too.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import comlrl_env
from comlrl_env.types import Item


@contextmanager
def good_server(env_id: str) -> Iterator[str]:
    """The URL of a server for that environment's task."""
    task: Any = comlrl_env.load_task(env_id)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            gold = task.gold(Item(key="asked", data=asked["batch_item"]))
            text = gold[task.agents[asked["agent_idx"]]]
            body = json.dumps({"completions": [text] * asked["num_return_sequences"]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/generate"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
