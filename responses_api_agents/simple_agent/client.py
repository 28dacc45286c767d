"""Ask a running agent one question: `python client.py [agent name]`, in a checkout whose servers run."""

import asyncio
import sys

from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status


async def main(agent_name: str) -> None:
    client = ServerClient.load_from_global_config()
    question = {"input": [{"role": "user", "content": "What is the capital of France?"}]}
    answer = await client.post(server_name=agent_name, url_path="/v1/responses", json=question)
    await raise_for_status(answer)
    for item in (await get_response_json(answer))["output"]:
        print(item)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "simple_agent"))
