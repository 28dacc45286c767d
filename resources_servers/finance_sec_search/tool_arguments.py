"""What tools are called with, and what they answer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class FinanceAgentSearchRequest(BaseModel):
    """List the filings of a company."""

    ticker: str = Field(description="Ticker symbol of the company")
    form_types: list[str] | str | None = Field(default=None, description="Forms, such as 10-K; all without")
    start_date: str | None = Field(default=None, description="First day of filing, as YYYY-MM-DD")
    end_date: str | None = Field(default=None, description="Last day of filing, as YYYY-MM-DD")


class EdgarSearchRequest(BaseModel):
    """Search the text of filings."""

    search_query: str = Field(description="Words that must all occur; OR, NOT, quoted phrases and a trailing * work")
    form_types: list[str] | str | None = Field(default=None, description="Forms, such as 10-K; all without")
    ciks: list[str | int] | str | int | None = Field(default=None, description="CIKs of companies; all without")
    start_date: str | None = Field(default="1900-01-01", description="First day of filing, as YYYY-MM-DD")
    end_date: str | None = Field(default=None, description="Last day of filing, as YYYY-MM-DD")
    page: int | str = Field(default=1, description="Which hundred results, from 1")
    top_n_results: int | str = Field(default=100, description="How many of them, from 1 to 100")


class ParseHtmlPageRequest(BaseModel):
    """Fetch a page and store its text."""

    url: str = Field(description="Address of the page")
    key: str = Field(description="Key to store its text under")


class RetrieveInformationRequest(BaseModel):
    """Ask a model about stored documents."""

    prompt: str = Field(description="The question, with {{key}} for each document it is about")
    input_character_ranges: Any = Field(
        default=None, description='Parts of long documents: a list of {"key", "start", "end"}'
    )


class WebSearchRequest(BaseModel):
    """Search the web."""

    search_query: str = Field(description="What to search for")
    start_date: str | None = Field(default=None, description="First day of publication, as YYYY-MM-DD")
    end_date: str | None = Field(default=None, description="Last day of publication, as YYYY-MM-DD")
    number_of_results: int | str = Field(default=10, description="How many results, from 1 to 20")


class SubmitFinalResultRequest(BaseModel):
    """Submit the answer to the question, which ends the task."""

    final_result: str = Field(description="The answer")


class ToolAnswer(BaseModel):
    """What a model reads: a text, or JSON as text."""

    results: str

    @classmethod
    def of(cls, text: str) -> ToolAnswer:
        """An answer that can be sent, whatever a page or a model had in its text."""
        return cls(results=text.encode("utf-8", errors="replace").decode("utf-8"))
