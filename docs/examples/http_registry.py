# ruff: noqa: INP001 - a script by itself
"""A platform that answers which pods serve, for a registry of type HTTP; needs Python alone.

TOKEN=secret python http_registry.py services.json 8443 [certificate.pem key.pem]

services.json: {"order": [{"pod": "order-7d9f-abcde", "state": "out", "reason": "pulled out by hand"}]}
"""

import hashlib
import json
import os
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # one connection for all questions

    def do_GET(self) -> None:
        service = parse_qs(urlsplit(self.path).query).get("service", [""])[0]
        services = json.loads(Path(sys.argv[1]).read_text())
        if self.headers["Authorization"] != f"Bearer {os.environ['TOKEN']}":
            self.answer(401, b"wrong token")
        elif service not in services:
            self.answer(404, b"no such service")
        else:
            document = {"service": service, "complete": True, "instances": services[service]}
            self.answer(200, json.dumps(document).encode())

    def answer(self, status: int, body: bytes) -> None:
        tag = f'"{hashlib.sha256(body).hexdigest()}"'
        if status == 200 and self.headers["If-None-Match"] == tag:
            status, body = 304, b""  # what was answered before still holds
        self.send_response(status)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("", int(sys.argv[2])), Handler)
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[3:])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
