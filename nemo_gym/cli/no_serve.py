"""What `gym eval run --no-serve` is given in vain: servers that run keep the model and the place they have."""

from argparse import Namespace
from collections.abc import Sequence

from nemo_gym.cli.overrides import override_key

_FLAGS = {"model_type": "--model-type"}
_KEYS = {
    "policy_model_name": "--model",
    "policy_base_url": "--model-url",
    "policy_api_key": "--model-api-key",
    "placement": "+placement",
    "placement_shards": "+placement_shards",
    "server_restarts": "+server_restarts",
}


def warn_of_unheeded(args: Namespace, overrides: Sequence[str]) -> None:
    """Say in one sentence what of the line cannot change servers that run already."""
    from nemo_gym.config.notices import warn

    given = [shown for name, shown in _FLAGS.items() if getattr(args, name, None)]
    given += [_KEYS[key] for token in overrides if (key := override_key(token)) in _KEYS]
    if given:
        verb = "has" if len(given) == 1 else "have"
        warn(
            f"{', '.join(dict.fromkeys(given))} {verb} no effect with --no-serve, which uses the servers as they run: "
            f"give it to `gym env start`, or leave --no-serve out."
        )
