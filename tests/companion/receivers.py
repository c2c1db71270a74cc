"""Places that notifications go to: a web hook and a mail server on loopback, which take, refuse, or never answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass
class Hook:
    """A web hook. While `answers` is cleared it never answers; `status` is what it says when it does."""

    status: int = 200
    location: str = ""
    taken: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.port}/hook"

    async def told(self, count: int) -> list[dict[str, Any]]:
        """What it was sent, once that is so many."""
        async with asyncio.timeout(60):
            while len(self.taken) < count:
                self.news.clear()
                await self.news.wait()
        return self.taken

    async def handle(self, request: web.Request) -> web.Response:
        self.paths.append(request.path_qs)
        self.taken.append(await request.json())
        self.news.set()
        await self.answers.wait()
        return web.Response(status=self.status, headers={"Location": self.location} if self.location else None)


@contextlib.asynccontextmanager
async def hook() -> AsyncIterator[Hook]:
    """A web hook that takes what it is sent."""
    made = Hook()
    made.answers.set()
    app = web.Application()
    app.router.add_post("/hook", made.handle)
    async with TestServer(app, host="127.0.0.1") as server:
        made.port = server.port or 0
        yield made
        made.answers.set()


@dataclass
class Mailbox:
    """A mail server that takes everything, or after `silent` says nothing at all."""

    silent: bool = False
    port: int = 0
    mails: asyncio.Queue[tuple[str, list[str], Message]] = field(default_factory=asyncio.Queue)
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    _open: list[asyncio.StreamWriter] = field(default_factory=list)

    async def next(self) -> tuple[str, list[str], Message]:
        """Sender, recipients and mail."""
        async with asyncio.timeout(60):
            return await self.mails.get()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        self.connected.set()
        if self.silent:
            await reader.read()
        else:
            await self._converse(reader, writer)
        writer.close()

    async def close(self) -> None:
        """End what is still open."""
        for writer in self._open:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sender, recipients = "", []

        def say(line: str) -> None:
            writer.write(f"{line}\r\n".encode())

        say("220 mail.test ESMTP")
        while line := (await reader.readline()).decode().strip():
            match line.upper().split(maxsplit=1)[0].partition(":")[0]:
                case "EHLO" | "HELO":
                    say("250 mail.test")
                case "MAIL":
                    sender = line.partition("<")[2].partition(">")[0]
                    say("250 ok")
                case "RCPT":
                    recipients.append(line.partition("<")[2].partition(">")[0])
                    say("250 ok")
                case "DATA":
                    say("354 go on")
                    body = await reader.readuntil(b"\r\n.\r\n")
                    self.mails.put_nowait((sender, recipients, message_from_bytes(body[:-3])))
                    say("250 ok")
                case "QUIT":
                    say("221 bye")
                    return
                case _:
                    say("502 not here")


@contextlib.asynccontextmanager
async def mailbox(*, silent: bool = False) -> AsyncIterator[Mailbox]:
    """A mail server on a free port."""
    made = Mailbox(silent=silent)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.close()
