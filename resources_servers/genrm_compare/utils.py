"""The names that others import, from where they are."""

from resources_servers.genrm_compare.aggregation import aggregate_scores
from resources_servers.genrm_compare.conversations import (
    EMPTY_OUTPUT_PLACEHOLDER,
    extract_conversation_history,
    extract_from_response_obj,
    extract_output_text,
    get_prompt_key,
    get_prompt_key_from_input,
)
from resources_servers.genrm_compare.style import (
    _compute_style_density_weights,
    apply_style_penalties,
    compute_style_density,
    count_style_elements,
)
from resources_servers.genrm_compare.verdicts import (
    GenRMOutputParseError,
    generate_comparison_pairs,
    parse_genrm_output,
)

__all__ = [
    "EMPTY_OUTPUT_PLACEHOLDER",
    "GenRMOutputParseError",
    "_compute_style_density_weights",
    "aggregate_scores",
    "apply_style_penalties",
    "compute_style_density",
    "count_style_elements",
    "extract_conversation_history",
    "extract_from_response_obj",
    "extract_output_text",
    "generate_comparison_pairs",
    "get_prompt_key",
    "get_prompt_key_from_input",
    "parse_genrm_output",
]
