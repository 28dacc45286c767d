"""The settings of the server."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from nemo_gym.base_resources_server import BaseResourcesServerConfig, ReverifyMode
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from resources_servers.sec_local_index.edgar_search_service import checked_day
from resources_servers.sec_local_index.live_edgar_search import API_URL

HERE = Path(__file__).parent
USER_AGENT = "NeMo Gym finance_sec_search (set user_agent to your name and mail address)"


class FinanceAgentResourcesServerConfig(BaseResourcesServerConfig):
    """Times are in seconds, lengths in characters, sizes in bytes. A path that isn't absolute is one in this folder,
    else in a root; `cache_dir` is one in this folder, else below the working directory."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    cache_dir: str = "~/.cache/nemo_gym/finance_sec_search"
    use_cache: bool = False
    supplementary_tickers_fpath: str | None = None
    sec_dump_path: str | None = None

    user_agent: str = USER_AGENT
    requests_per_second: float = Field(default=10, gt=0)
    request_timeout: float = Field(default=30, gt=0)
    max_connections_per_host: int = Field(default=10, gt=0)
    max_retries: int = Field(default=3, ge=0)
    max_page_bytes: int = Field(default=64 << 20, gt=0)
    offline: bool = False
    allow_private_addresses: bool = False
    sec_base_url: str = "https://www.sec.gov"
    sec_data_base_url: str = "https://data.sec.gov"

    tavily_api_key: str | None = None
    tavily_base_url: str = "https://api.tavily.com"

    edgar_search_mode: Literal["live", "local"] | None = None
    sec_api_key: str | None = None
    sec_api_url: str = API_URL
    local_edgar_index_path: str | None = None
    local_edgar_metadata_path: str | None = None
    local_edgar_metrics_dir: str | None = None
    max_end_date: str | None = None

    retrieval_model_server: ModelServerRef | None = None
    retrieval_responses_create_params: NeMoGymResponseCreateParamsNonStreaming | None = None
    retrieval_system_prompt: str | None = None
    retrieval_system_prompt_fpath: str = "prompt_templates/retrieval.yaml"
    retrieval_max_output_tokens: int | None = Field(default=None, gt=0)
    retrieval_model_context_length: int = Field(default=131072, gt=0)

    judge_model_server: ModelServerRef | None = None
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming | None = None
    judge_prompt_template: str | None = None
    judge_prompt_template_fpath: str = "prompt_templates/judge.yaml"
    judge_call_timeout: float = Field(default=60, gt=0)
    reward_mode: Literal["binary", "scaled"] = "binary"
    delimit_answers: bool = False
    mask_without_verdict: bool = False

    large_doc_threshold_chars: int = Field(default=100_000, gt=0)
    max_filing_results: int = Field(default=200, gt=0)
    max_rollout_time_seconds: float | None = None
    max_session_documents: int = Field(default=200, gt=0)
    max_session_chars: int = Field(default=50_000_000, gt=0)

    @model_validator(mode="after")
    def _searches_have_what_they_need(self) -> FinanceAgentResourcesServerConfig:
        if self.edgar_search_mode == "local" and not self.local_edgar_index_path:
            raise ValueError("edgar_search_mode: local needs local_edgar_index_path, the index to search")
        if self.edgar_search_mode == "live" and not self.sec_api_key:
            raise ValueError("edgar_search_mode: live needs sec_api_key, a key of sec-api.io")
        if self.max_end_date is not None:
            self.max_end_date = checked_day(self.max_end_date, "max_end_date")
        return self


def file_at(path: str) -> Path:
    """A path of the settings: absolute, in this folder, or in a root."""
    own = HERE / Path(path).expanduser()
    return own if own.exists() else resolve_under_roots(str(Path(path).expanduser()))


def cache_folder(path: str) -> Path:
    own = HERE / Path(path).expanduser()
    return own if own.exists() else Path(path).expanduser().absolute()


def prompt_at(path: str, key: str) -> str:
    """The text under `key` of a YAML file. Raises ConfigError when there is none."""
    import yaml

    try:
        content = yaml.safe_load(file_at(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{key}_fpath: {path} can't be read as YAML ({error})") from error
    prompt = content.get(key) if isinstance(content, dict) else None
    if not isinstance(prompt, str):
        raise ConfigError(f"{key}_fpath: {path} has no text under the key {key}")
    return prompt.strip()
