"""A chat server on this machine that answers as a test tells it to."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""


def completion(text: str, finish_reason: str = "stop") -> Answer:
    """Return what a server says when all went well."""
    message = {"role": "assistant", "content": text}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}
    return 200, {}, json.dumps(body).encode()


def refusal(status: int, message: str = "no", **headers: str) -> Answer:
    """Return an error as servers word it."""
    return status, headers, json.dumps({"error": {"message": message}}).encode()


@contextmanager
def chat_server(answer: Callable[[dict[str, Any]], Answer], model: str = "toy") -> Iterator[tuple[str, list[Any]]]:
    """Serve one model until the block ends.

    Args:
        answer: What to say to the body of each request for a chat completion.
        model: The model's name.

    Yields:
        The server's address, and the bodies and headers of requests so far.
    """
    asked: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send((200, {}, json.dumps({"data": [{"id": model}]}).encode()))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body | {"headers": dict(self.headers)})
            self._send(answer(body))

        def _send(self, what: Answer) -> None:
            status, headers, body = what
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
