"""Images as data URLs."""

import base64
import binascii
import re

from nemo_gym.schema.errors import InvalidContent, UnsupportedInDialect

IMAGE_MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_DATA_URL = re.compile(r"data:(?P<media_type>[^;,]+);base64,(?P<data>.*)", re.DOTALL)


def data_url(media_type: str, data: str) -> str:
    """A data URL. Raises UnsupportedInDialect for a media type that is no supported image."""
    if media_type not in IMAGE_MEDIA_TYPES:
        raise UnsupportedInDialect(
            f"images of type {media_type!r} are not supported; use {', '.join(IMAGE_MEDIA_TYPES)}"
        )
    return f"data:{media_type};base64,{data}"


def parse_data_url(url: str) -> tuple[str, str]:
    """Media type and base64 text of an image's data URL. Raises InvalidContent if it is anything else."""
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise InvalidContent(f"an image must be a base64 data URL; got {url[:40]!r}")
    media_type = found["media_type"].replace("image/jpg", "image/jpeg")
    if media_type not in IMAGE_MEDIA_TYPES:
        raise InvalidContent(f"images of type {media_type!r} are not supported; use {', '.join(IMAGE_MEDIA_TYPES)}")
    try:
        decoded = base64.b64decode(found["data"], validate=True)
    except (binascii.Error, ValueError):
        raise InvalidContent("an image's data is not valid base64") from None
    if not decoded:
        raise InvalidContent("an image's data is empty")
    return media_type, found["data"]
