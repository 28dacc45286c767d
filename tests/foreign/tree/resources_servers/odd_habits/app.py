import asyncio
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Dict

import work
from fastapi import FastAPI
from omegaconf import OmegaConf

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint

HERE = Path(__file__).parent


def doubled(number: int) -> int:
    """Run in worker processes: found again there as a function of this script."""
    return 2 * number


def forked_sum(numbers):
    """As verifiers for slow checks do: a pool of forks for each call, ended without much ado."""
    pool = multiprocessing.get_context("fork").Pool(2)
    try:
        return sum(pool.map(doubled, numbers))
    finally:
        pool.terminate()
        pool.join()


class OddHabitsConfig(BaseResourcesServerConfig):
    nested: Dict[str, Any] = {}


class OddHabitsVerifyResponse(BaseVerifyResponse):
    seen: Dict[str, Any]


class OddHabitsResourcesServer(SimpleResourcesServer):
    config: OddHabitsConfig
    server_side: int = 3

    def setup_webserver(self) -> FastAPI:
        app = FastAPI(lifespan=self.lifespan)
        self.setup_session_middleware(app)
        app.post("/seed_session")(self.seed_session)
        app.post("/verify")(self.verify)
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.post("/{path}")(self.any_tool)
        return app

    @asynccontextmanager
    async def lifespan(self, app: FastAPI):
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        self._ticks = 0
        ticking = asyncio.create_task(self.tick())
        yield
        ticking.cancel()
        self._pool.shutdown()

    async def tick(self):
        while True:
            self._ticks += 1
            await asyncio.sleep(0.01)

    async def any_tool(self, path: str, body: Dict[str, Any]) -> Dict[str, Any]:
        return {"tool": path, "arguments": body}

    async def verify(self, body: BaseVerifyRequest) -> OddHabitsVerifyResponse:
        loop = asyncio.get_running_loop()
        whole = OmegaConf.to_container(self.server_client.global_config_dict, resolve=True)
        seen = {
            "doubled": await loop.run_in_executor(self._pool, doubled, 21),
            "tripled": await loop.run_in_executor(self._pool, work.tripled, 7),
            "cwd": os.getcwd(),
            "here": str(HERE.resolve()),
            "script": os.path.basename(sys.argv[0]),
            "main": sys.modules["__main__"].__name__,
            "nested": OmegaConf.to_container(OmegaConf.create(self.config.nested)),
            "nested_of_config": whole["odd_habits"]["resources_servers"]["odd_habits"]["nested"],
            "model_name": get_global_config_dict()["policy_model_name"],
            "ticked": self._ticks > 0,
            "forked": await loop.run_in_executor(None, forked_sum, [1, 2, 3]),
        }
        return OddHabitsVerifyResponse(**body.model_dump(), reward=1.0, seen=seen)


if __name__ == "__main__":
    OddHabitsResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = OddHabitsResourcesServer.run_webserver()
