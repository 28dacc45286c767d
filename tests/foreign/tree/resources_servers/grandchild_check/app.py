import asyncio
import json
import sys

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ResourcesServerRef


class GrandchildCheckConfig(BaseResourcesServerConfig):
    desk: ResourcesServerRef


class GrandchildCheckVerifyResponse(BaseVerifyResponse):
    seen_by_grandchild: dict


class GrandchildCheckResourcesServer(SimpleResourcesServer):
    config: GrandchildCheckConfig

    async def verify(self, body: BaseVerifyRequest) -> GrandchildCheckVerifyResponse:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "grandchild.py",
            self.config.name,
            self.config.desk.name,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"grandchild ended with {process.returncode}")
        seen = json.loads(out.splitlines()[-1])
        return GrandchildCheckVerifyResponse(
            **body.model_dump(), reward=float(seen["titles"] == ["from below"]), seen_by_grandchild=seen
        )


if __name__ == "__main__":
    GrandchildCheckResourcesServer.run_webserver()
