import json
from time import time
from typing import Dict
from uuid import uuid4

from fastapi import Request

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionMessage,
    NeMoGymChoice,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.server_utils import SESSION_ID_KEY


class RuleModelConfig(BaseResponsesAPIModelConfig):
    trigger: str = "Please open: "


class RuleModel(SimpleResponsesAPIModel):
    """Calls open_ticket for what the user asks for, then says that it is done."""

    config: RuleModelConfig

    def model_post_init(self, context):
        super().model_post_init(context)
        self._calls: Dict[str, int] = {}

    def setup_webserver(self):
        app = super().setup_webserver()
        app.get("/rules")(self.rules)
        return app

    async def rules(self) -> dict:
        return {"trigger": self.config.trigger}

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        session = request.session[SESSION_ID_KEY]
        self._calls[session] = self._calls.get(session, 0) + 1
        items = [] if isinstance(body.input, str) else body.input
        last = items[-1] if items else None
        content = getattr(last, "content", None)
        if getattr(last, "type", None) == "function_call_output":
            output = self._message(f"Done: {last.output}")
        elif isinstance(content, str) and self.config.trigger in content:
            title = content.split(self.config.trigger, 1)[1]
            output = NeMoGymResponseFunctionToolCall(
                arguments=json.dumps({"title": title, "priority": 1}),
                call_id=f"call_{uuid4().hex}",
                name="open_ticket",
                type="function_call",
                id=f"fc_{uuid4().hex}",
                status="completed",
            )
        else:
            output = self._message("What shall I open?")
        return NeMoGymResponse(
            id=f"resp_{uuid4().hex}",
            created_at=int(time()),
            model=body.model or self.config.name,
            object="response",
            output=[output],
            tool_choice=body.tool_choice,
            parallel_tool_calls=body.parallel_tool_calls,
            tools=body.tools,
            metadata={"calls_of_session": str(self._calls[session])},
        )

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        said = body.messages[-1]["content"] if body.messages else ""
        return NeMoGymChatCompletion(
            id=f"chatcmpl-{uuid4().hex}",
            created=int(time()),
            model=body.model or "rule",
            object="chat.completion",
            choices=[
                NeMoGymChoice(
                    index=0,
                    finish_reason="stop",
                    message=NeMoGymChatCompletionMessage(role="assistant", content=f"You said {said}", tool_calls=None),
                )
            ],
        )

    @staticmethod
    def _message(text: str) -> NeMoGymResponseOutputMessage:
        return NeMoGymResponseOutputMessage(
            id=f"msg_{uuid4().hex}", content=[NeMoGymResponseOutputText(annotations=[], text=text)]
        )


if __name__ == "__main__":
    RuleModel.run_webserver()
