"""Run by verify: reads the run's config and works with another server of the run."""

import asyncio
import json
import sys

from nemo_gym.global_config import get_first_server_config_dict, get_global_config_dict
from nemo_gym.server_utils import ServerClient, get_response_json, get_server_url, raise_for_status


async def main(me: str, desk: str) -> None:
    config = get_global_config_dict()
    mine = get_first_server_config_dict(config, me)
    client = ServerClient.load_from_global_config()
    opened = await client.post(server_name=desk, url_path="/open_ticket", json={"title": "from below"})
    await raise_for_status(opened)
    listed = await client.post(server_name=desk, url_path="/list_tickets", json={}, cookies=opened.cookies)
    await raise_for_status(listed)
    titles = (await get_response_json(listed))["titles"]
    seen = {
        "domain": mine["domain"],
        "desk_of_config": mine.desk.name,
        "url": get_server_url(desk),
        "model": config["policy_model_name"],
        "titles": titles,
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
