"""Prints what was said on a topic, of any holder, on the cluster that KCAST_CLUSTER names."""

import asyncio

from kcast import Client


async def main() -> None:
    """Gets what is there, and adds to it."""
    async with Client() as client, client.history("chat") as log:
        print(await log.synced(timeout_s=5))
        await log.append("ho", confirm=1)
        async for entry in log.entries(since=600, live=False):
            print(entry.payload)


asyncio.run(main())
