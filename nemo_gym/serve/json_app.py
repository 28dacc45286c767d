"""The app every server starts from."""

from fastapi import FastAPI

from nemo_gym.serve.fixed_routes import FixedRoutes
from nemo_gym.serve.json_route import JSONRoute


def json_app() -> FastAPI:
    """An empty FastAPI app whose routes take the short way for JSON wherever their handlers allow it."""
    app = FastAPI(telemetry={"tracing": False, "metrics": False, "logs": False})  # `nemo_gym.telemetry` does that
    app.router.route_class = JSONRoute
    app.add_middleware(FixedRoutes, router=app.router)
    return app
