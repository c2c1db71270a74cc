"""A stand-in for the adapter that answers one number for every object: it tests the harness, not the adapter.

The number is in the settings under "stub"; each request reads the file.
"""

import argparse
import http.server
import json
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import yaml

GROUP = "custom.metrics.k8s.io"


class Handler(http.server.BaseHTTPRequestHandler):
    """Discovery, readiness and one metric."""

    protocol_version = "HTTP/1.1"
    settings: Path

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts == ["readyz"]:
            self._answer({"ok": True})
        elif parts[:2] == ["apis", GROUP] and len(parts) == 3:
            verbs = {"name": "*/desired_replicas", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]}
            version = f"{GROUP}/{parts[2]}"
            listing = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [verbs]}
            self._answer({**listing, "resources": [{**verbs, "singularName": ""}]})
        elif parts[:2] == ["apis", GROUP] and len(parts) == 8:
            self._answer(self._metric(*parts[2:]))
        else:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            self._answer({**status, "message": f"the stub has no {self.path}"}, 404)

    def _metric(self, version: str, _: str, namespace: str, resource: str, name: str, metric: str) -> dict[str, Any]:
        described = {"kind": resource, "namespace": namespace, "name": name, "apiVersion": "v1"}
        named = {"metric": {"name": metric}} if version == "v1beta2" else {"metricName": metric}
        stub = yaml.safe_load(self.settings.read_text())["stub"]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        value = {"describedObject": described, **named, "timestamp": stamp, "value": str(stub)}
        return {"kind": "MetricValueList", "apiVersion": f"{GROUP}/{version}", "metadata": {}, "items": [value]}

    def _answer(self, body: Any, status: int = 200) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig")
    parser.add_argument("--settings", type=Path)
    Handler.settings = parser.parse_args().settings
    settings = yaml.safe_load(Handler.settings.read_text())
    server = settings["server"]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server["tls"]["certFile"], server["tls"]["keyFile"])
    http.server.ThreadingHTTPServer.daemon_threads = True
    telemetry = http.server.ThreadingHTTPServer(("127.0.0.1", settings["telemetry"]["port"]), Handler)
    threading.Thread(target=telemetry.serve_forever, daemon=True).start()
    with http.server.ThreadingHTTPServer(("127.0.0.1", server["port"]), Handler) as serving:
        serving.socket = context.wrap_socket(serving.socket, server_side=True)
        serving.serve_forever()


if __name__ == "__main__":
    main()
