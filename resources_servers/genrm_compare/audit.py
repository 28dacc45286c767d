"""What the audit of this environment knows."""

from nemo_gym.audit import Audit

AUDIT = Audit(
    no_reference="a reward says how an answer compares with others to the same prompt, so no answer is right by itself",
    low=3.0,
    overrides=("++genrm_compare.resources_servers.genrm_compare.num_rollouts_per_prompt=1",),
)
