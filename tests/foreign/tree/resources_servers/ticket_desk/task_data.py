from typing import Any, Dict, List, Optional

from pydantic import BaseModel, ConfigDict, Field


class TaskData(BaseModel):
    model_config = ConfigDict(extra="allow")

    expected_titles: List[str] = Field(json_schema_extra={"consumed_by": ["verify"]})
    first_tickets: List[str] = []
    verifier_metadata: Optional[Dict[str, Any]] = None
