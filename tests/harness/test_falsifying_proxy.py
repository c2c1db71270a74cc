"""The proxy that falsifies answers lies like one server."""

import json
import time
from typing import Any

from lab.faults.proxies import FalsifyingProxy


def test_the_times_of_a_value_are_changed_as_the_value_was() -> None:
    def lie(_asked: str, answer: Any) -> Any:
        return answer | {"true": False}

    with FalsifyingProxy(lambda *_: (200, b'{"true": true}'), None) as proxy:

        def ask(body: str) -> object:
            return json.loads(proxy.answer("POST", "/api/v1/query", body.encode(), "")[1])["true"]

        before = time.time()
        proxy.falsify = lie
        during = time.time()
        assert (ask("query=x"), ask(f"query=timestamp(x)&time={before}")) == (False, True)
        proxy.falsify = None
        assert (ask("query=x"), ask(f"time={during}&query=timestamp(x)")) == (True, False)
