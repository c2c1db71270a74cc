"""Waiting for what nobody tells."""

import asyncio
from collections.abc import Callable


async def eventually(holds: Callable[[], object]) -> None:
    """Return once it holds; fails after a minute."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.01)
