"""A service and a caller in one program, on the cluster that KCAST_CLUSTER names."""

import asyncio

from kcast import Client, RemoteError, Request


async def div(request: Request) -> str:
    """Divides."""
    one, other = map(int, request.payload.split())
    return str(one // other)


async def main() -> None:
    """Asks twice, and looks who is there."""
    async with Client() as client, client.service("sums", {"div": div}):
        reply = await client.request("sums", "84 2", "div", timeout_s=5)
        print(reply.payload)
        try:
            await client.request("sums", "84 0", "div", timeout_s=5)
        except RemoteError as error:
            print(error)
        async with client.members("sums", info="ada") as members:
            await members.ready(timeout_s=5)
            print(sorted(member.info for member in members.alive))
            async for event in members:
                print(type(event).__name__)
                break


asyncio.run(main())
