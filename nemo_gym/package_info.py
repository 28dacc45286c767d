"""What the distribution says about itself."""

MAJOR = 0
MINOR = 7
PATCH = 0
PRE_RELEASE = "anew.1"

__shortversion__ = f"{MAJOR}.{MINOR}.{PATCH}"
__version__ = f"{__shortversion__}+{PRE_RELEASE}"

__package_name__ = "nemo_gym"
__contact_names__ = "NeMo Gym maintainers"
__contact_emails__ = ""
__homepage__ = ""
__repository_url__ = ""
__download_url__ = ""
__description__ = "Evaluate and train LLM agents in environments."
__license__ = "Apache-2.0"
__keywords__ = "agents, environments, evaluation, reinforcement learning, rollouts, verifier, LLM"
