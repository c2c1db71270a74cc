"""Writes objects directly into etcd, many in a transaction: a hundred times faster than creating them one by one.

The API server reads JSON from its storage as well as its own binary form, and its watches see the writes.
"""

import base64
import http.client
import itertools
import json
from collections.abc import Iterable

from lab.benchmarks.scene import Object

_AT_ONCE = 100  # etcd allows 128 operations and 1.5 MB in a transaction


def put(port: int, objects: Iterable[tuple[str, Object]]) -> int:
    """Writes objects through etcd's HTTP gateway; returns their number."""
    operations = (_put(key, item) for key, item in objects)
    connection, done = http.client.HTTPConnection("127.0.0.1", port, timeout=60), 0
    while batch := list(itertools.islice(operations, _AT_ONCE)):
        connection.request("POST", "/v3/kv/txn", json.dumps({"success": batch}).encode())
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"etcd: {answer.status} {text[:300]!r}")
        done += len(batch)
    connection.close()
    return done


def _put(key: str, item: Object) -> Object:
    value = json.dumps(item, separators=(",", ":")).encode()
    return {"requestPut": {"key": _text(key.encode()), "value": _text(value)}}


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
