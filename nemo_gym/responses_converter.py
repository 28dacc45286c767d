"""Responses ⇄ Chat Completions, as components import it."""

from uuid import uuid4

from nemo_gym.schema.chat_to_responses import AnswerConversion, split_responses_input_output_items
from nemo_gym.schema.chat_usage import usage_detail as _usage_detail
from nemo_gym.schema.conversion import ResponsesConverterState
from nemo_gym.schema.responses_to_chat import RequestConversion


class ResponsesConverter(RequestConversion, AnswerConversion):
    """Converts requests for a chat backend and its answers back.

    Items of an answer, appended to the next request's input, give the same chat messages again, reasoning included;
    so prompts grow without changing what was sent before.
    """

    return_token_id_information: bool
    uses_reasoning_parser: bool = True

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}_{uuid4().hex}"


VLLMConverter = ResponsesConverter
VLLMConverterResponsesToChatCompletionsState = ResponsesConverterState

__all__ = [
    "ResponsesConverter",
    "ResponsesConverterState",
    "VLLMConverter",
    "VLLMConverterResponsesToChatCompletionsState",
    "_usage_detail",
    "split_responses_input_output_items",
    "uuid4",
]
