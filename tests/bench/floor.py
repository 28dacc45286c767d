"""The floor of `single`: one client posts each row's request straight to the provider and keeps the replies' bytes."""

import asyncio
import sys
from pathlib import Path

import aiohttp
import orjson


async def main(rows: Path, base_url: str, width: int) -> None:
    gate = asyncio.Semaphore(width)

    async def ask(session: aiohttp.ClientSession, body: bytes) -> bytes:
        async with gate, session.post(f"{base_url}/responses", data=body, headers=headers) as reply:
            return await reply.read()

    headers = {"Content-Type": "application/json", "Authorization": "Bearer k"}
    bodies = [
        orjson.dumps(orjson.loads(line)["responses_create_params"] | {"model": "mock"}) for line in rows.open("rb")
    ]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        replies = await asyncio.gather(*(ask(session, body) for body in bodies))
    for reply in replies:
        orjson.loads(reply)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
