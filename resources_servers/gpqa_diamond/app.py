"""The questions of GPQA Diamond: as `mcqa`, with a way of its own to read the letter."""

import re
from typing import ClassVar

from nemo_gym.base_resources_server import ReverifyMode
from nemo_gym.verifiers.extraction import chosen_letter
from nemo_gym.verifiers.long_texts import read_apart
from nemo_gym.verifiers.response_text import all_text
from resources_servers.mcqa.answers import Options
from resources_servers.mcqa.app import (
    MCQAResourcesServer,
    MCQAResourcesServerConfig,
    MCQAVerifyRequest,
    matched_letter,
)

_BOXED_COMMAND = re.compile(r"\\boxed\{\s*+\\(?:text|textbf|mathrm|mathbf)\{\s*+\(?([A-Z])\)?\s*+\}\s*+\}")


class GPQADiamondResourcesServerConfig(MCQAResourcesServerConfig):
    """`statement_first`: what is said to be the answer goes before a letter within a boxed formula."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN

    statement_first: bool = False


class GPQADiamondResourcesServer(MCQAResourcesServer):
    config: GPQADiamondResourcesServerConfig

    async def extract_answer(self, body: MCQAVerifyRequest) -> str | None:
        text, options = all_text(body.response).strip(), Options.of(body.options)
        pattern = (body.template_metadata or {}).get("output_regex")
        answer = await matched_letter(pattern, text, options) if isinstance(pattern, str) else None
        if answer is not None:
            return answer
        return await read_apart(len(text), self.letter, text, options)

    def letter(self, text: str, options: Options) -> str | None:
        """The letter a text chooses, by its boxes and by what it says."""
        return chosen_letter(plain(text), options.texts or None, statement_first=self.config.statement_first)


def plain(text: str) -> str:
    r"""A text without bold type, and with `\boxed{\text{C}}` as `\boxed{C}`."""
    return _BOXED_COMMAND.sub(r"\\boxed{\1}", text.replace("**", ""))


if __name__ == "__main__":
    GPQADiamondResourcesServer.run_webserver()
