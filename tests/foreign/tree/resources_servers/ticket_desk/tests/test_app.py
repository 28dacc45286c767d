import os
from pathlib import Path
from unittest.mock import MagicMock

from app import TicketDeskConfig, TicketDeskResourcesServer, TicketDeskVerifyRequest
from fastapi.testclient import TestClient

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from resources_servers.ticket_desk.grading import grade


def make_server() -> TicketDeskResourcesServer:
    os.chdir(Path(__file__).parents[1])
    config = TicketDeskConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="",
        greeting_template_fpath="prompt_templates/greeting.txt",
    )
    return TicketDeskResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


def make_response(text: str) -> NeMoGymResponse:
    return NeMoGymResponse(
        id="resp_1",
        created_at=0.0,
        model="dummy",
        object="response",
        output=[
            {
                "id": "msg_1",
                "content": [{"annotations": [], "text": text, "type": "output_text"}],
                "role": "assistant",
                "status": "completed",
                "type": "message",
            }
        ],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )


class TestApp:
    def test_sanity(self) -> None:
        make_server()

    def test_grade(self) -> None:
        assert grade(["a"], ["a", "b"]) == 0.5

    def test_tools_and_sessions(self) -> None:
        app = make_server().setup_webserver()
        client = TestClient(app)
        answer = client.post("/open_ticket", json={"title": "Printer"}).json()
        assert answer == {"number": 1, "greeting": "Ticket opened: Printer. We will call you."}
        assert client.post("/list_tickets", json={}).json() == {"titles": ["Printer"]}
        assert TestClient(app).post("/list_tickets", json={}).json() == {"titles": []}

    async def test_verify(self) -> None:
        server = make_server()
        request = MagicMock()
        request.session = {"session_id": "abc"}
        server._tickets["abc"] = ["Broken   Printer"]
        result = await server.verify(
            request,
            TicketDeskVerifyRequest(
                responses_create_params=NeMoGymResponseCreateParamsNonStreaming(input="hi"),
                response=make_response("done"),
                expected_titles=["broken printer"],
                something_else={"a": 1},
            ),
        )
        assert result.reward == 1.0
        assert result.answer_seen == "done"
        assert result.model_extra["something_else"] == {"a": 1}

    def test_verify_over_http(self) -> None:
        client = TestClient(make_server().setup_webserver())
        body = {
            "responses_create_params": {"input": "hi"},
            "response": make_response("x").model_dump(),
            "expected_titles": ["y"],
        }
        answer = client.post("/verify", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["title_recall"] == 0.0
        assert client.post("/verify", json={}).status_code == 422
