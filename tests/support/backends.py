"""Servers at the far end of a route. Each answers with its own name, so a reply tells where the request went."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

import grpc


class HttpBackend:
    """An HTTP/1.1 server that answers every GET with its name."""

    def __init__(self, name: str) -> None:
        body = name.encode()

        class Say(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet per answer: two would wait for each other's acknowledgement

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None:
                """Requests are not worth a line in the test's output."""

        self.name = name
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Say)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class GrpcBackend(grpc.GenericRpcHandler):
    """A gRPC server that answers every unary method, whatever its name, with its own name as raw bytes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def service(self, _call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: self.name.encode())

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.stop(None).wait()
