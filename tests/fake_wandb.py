"""A W&B server on this machine that takes runs, and can stop answering."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "x" * 40
VIEWER = {"id": "VXNl", "entity": "me", "flags": "{}", "username": "me", "teams": {"edges": []}}
PROJECT = {"id": "UHJv", "name": "p", "entity": {"id": "RW50", "name": "me"}}


class FakeWandb(ThreadingHTTPServer):
    """Takes runs; `taken` has their ids.

    Attributes:
        stalls: Once a run has started, no request is answered any more.
        refuses: Ids of runs that are turned down.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stalls, self.refuses = False, set[str]()
        self.taken: list[str] = []
        self.never = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of those who hung up."""

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process use this server."""
        return {"WANDB_BASE_URL": f"http://127.0.0.1:{self.server_port}", "WANDB_API_KEY": KEY, "WANDB_MODE": "online"}


class _Handler(BaseHTTPRequestHandler):
    server: FakeWandb

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.server.stalls and self.server.taken:
            self.server.never.wait()
        if self.path != "/graphql":
            self._answer({})
            return
        asked = json.loads(body)
        self._answer(self._graphql(asked["query"], asked.get("variables") or {}))

    def _graphql(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        if "mutation UpsertBucket" in query:
            name = variables["name"]
            if name in self.server.refuses:
                return {"errors": [{"message": f"run {name} is not welcome"}]}
            if name not in self.server.taken:
                self.server.taken.append(name)
            bucket = {"id": "UnVu", "name": name, "displayName": name, "config": "{}", "project": PROJECT}
            return {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}
        if "query Viewer" in query:
            return {"data": {"viewer": VIEWER}}
        return {"errors": [{"message": "this server knows nothing else"}]}

    do_PUT = do_POST  # noqa: N815

    def _answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def fake_wandb() -> Iterator[FakeWandb]:
    """Serve until left."""
    server = FakeWandb()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.never.set()
        server.shutdown()
        server.server_close()
