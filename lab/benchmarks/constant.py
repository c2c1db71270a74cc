"""The server to compare with: aiohttp with the adapter's TLS context, and a handler with a constant answer.

`python -m lab.benchmarks.constant PORT AUTHORITY`
"""

import asyncio
import sys
import time
from pathlib import Path

from aiohttp import web

from adapter.apiserver import certificates
from adapter.apiserver.door import server_context

HEADERS = {"Content-Type": "application/json", "Server": "constant"}
BODY = b'{"kind":"MetricValueList","value":"0","padding":"' + 330 * b"." + b'"}'
"""A constant answer with the length of the answer for one policy."""


async def serve(port: int, authority: str) -> None:
    pair = await asyncio.to_thread(certificates.renewed, None, ("localhost",), time.time())
    context = await asyncio.to_thread(server_context, pair.serving, authority)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        del request
        return web.Response(body=BODY, headers=HEADERS)

    await asyncio.get_running_loop().create_server(web.Server(handle, access_log=None), "127.0.0.1", port, ssl=context)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]).read_text()))
