"""What a server's `task_data.py` may import, and how its schema is used."""

from nemo_gym.config.task_data import (
    RESERVED_ROW_KEYS,
    TaskDataSchemaError,
    TaskDataValidationReport,
    TaskDataValidator,
    consumed_by,
    find_server_dir,
    legacy_metadata_fields,
    load_task_data_schema,
    normalize_task_fields,
    validate_jsonl_rows,
)

__all__ = [
    "RESERVED_ROW_KEYS",
    "TaskDataSchemaError",
    "TaskDataValidationReport",
    "TaskDataValidator",
    "consumed_by",
    "find_server_dir",
    "legacy_metadata_fields",
    "load_task_data_schema",
    "normalize_task_fields",
    "validate_jsonl_rows",
]
