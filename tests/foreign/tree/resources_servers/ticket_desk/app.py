from pathlib import Path
from typing import Any, Dict, List, Optional

from fastapi import FastAPI, Request
from helpers import normalised
from pydantic import BaseModel, ConfigDict, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.reward_profile import compute_pass_majority_metrics, highest_k_metrics
from nemo_gym.server_utils import SESSION_ID_KEY
from resources_servers.ticket_desk.grading import grade


class TicketDeskConfig(BaseResourcesServerConfig):
    REVERIFY_MODE = ReverifyMode.UNSUPPORTED

    greeting_template_fpath: str
    max_tickets: int = 10


class TicketDeskRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")

    expected_titles: List[str]
    verifier_metadata: Optional[Dict[str, Any]] = None


class TicketDeskVerifyRequest(TicketDeskRunRequest, BaseVerifyRequest):
    pass


class TicketDeskVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    expected_titles: List[str]
    opened_titles: List[str]
    title_recall: float
    answer_seen: Optional[str] = None


class TicketDeskSeedRequest(BaseSeedSessionRequest):
    model_config = ConfigDict(extra="allow")

    first_tickets: List[str] = []


class OpenTicketRequest(BaseModel):
    title: str
    priority: int = 3


class OpenTicketResponse(BaseModel):
    number: int
    greeting: str


class ListTicketsResponse(BaseModel):
    titles: List[str]


class TicketDeskResourcesServer(SimpleResourcesServer):
    config: TicketDeskConfig
    _greeting: str = PrivateAttr()
    _tickets: Dict[str, List[str]] = PrivateAttr(default_factory=dict)

    def model_post_init(self, context):
        super().model_post_init(context)
        self._greeting = Path(self.config.greeting_template_fpath).read_text().strip()

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/open_ticket")(self.open_ticket)
        app.post("/list_tickets")(self.list_tickets)
        return app

    async def seed_session(self, request: Request, body: TicketDeskSeedRequest) -> BaseSeedSessionResponse:
        self._tickets.setdefault(request.session[SESSION_ID_KEY], list(body.first_tickets))
        return BaseSeedSessionResponse()

    async def open_ticket(self, request: Request, body: OpenTicketRequest) -> OpenTicketResponse:
        tickets = self._tickets.setdefault(request.session[SESSION_ID_KEY], [])
        if len(tickets) >= self.config.max_tickets:
            raise RuntimeError("the desk is full")
        tickets.append(body.title)
        return OpenTicketResponse(number=len(tickets), greeting=self._greeting.format(title=body.title))

    async def list_tickets(self, request: Request) -> ListTicketsResponse:
        return ListTicketsResponse(titles=self._tickets.get(request.session[SESSION_ID_KEY], []))

    async def verify(self, request: Request, body: TicketDeskVerifyRequest) -> TicketDeskVerifyResponse:
        opened = self._tickets.pop(request.session[SESSION_ID_KEY], [])
        recall = grade([normalised(t) for t in opened], [normalised(t) for t in body.expected_titles])
        return TicketDeskVerifyResponse(
            **body.model_dump(),
            reward=float(recall == 1.0),
            opened_titles=opened,
            title_recall=recall,
            answer_seen=body.response.output_text or None,
        )

    @staticmethod
    def _score_fn(result: dict) -> Dict[str, float]:
        return {"accuracy": result["reward"], "recall": result["title_recall"]}

    def compute_metrics(self, tasks: List[List[Dict[str, Any]]]) -> Dict[str, Any]:
        metrics, _, _, _ = compute_pass_majority_metrics(tasks, score_fn=self._score_fn, answer_key="answer_seen")
        metrics["desk/longest_title"] = max((len(t) for task in tasks for r in task for t in r["opened_titles"]), default=0)
        return metrics

    def get_key_metrics(self, agent_metrics: Dict[str, Any]) -> Dict[str, Any]:
        key = {"desk/longest_title": agent_metrics["desk/longest_title"]}
        key.update(highest_k_metrics(agent_metrics, "pass@1[avg-of-{k}]", score_names=["recall"]))
        return key


if __name__ == "__main__":
    TicketDeskResourcesServer.run_webserver()
