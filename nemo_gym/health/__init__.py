"""Whether rollouts can be trusted: what went wrong in them that their rewards don't show."""
