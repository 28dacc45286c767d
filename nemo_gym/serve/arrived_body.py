"""A body that is here in full, with the face of aiohttp's stream."""

import asyncio

from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol


def arrived(body: bytes) -> StreamReader:
    """A stream that gives `body` once; needs a running loop."""
    loop = asyncio.get_running_loop()
    stream = StreamReader(BaseProtocol(loop), limit=len(body) + 1, loop=loop)
    stream.feed_data(body)
    stream.feed_eof()
    return stream
