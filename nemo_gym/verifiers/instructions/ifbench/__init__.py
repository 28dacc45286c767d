"""The 58 instructions of IFBench (https://arxiv.org/abs/2507.02833, and its reference implementation).

Where that draws a number or a word at random because the row has none, the row is refused here.
"""

from nemo_gym.verifiers.instructions.ifbench.counts import COUNTS
from nemo_gym.verifiers.instructions.ifbench.custom import CUSTOM
from nemo_gym.verifiers.instructions.ifbench.layout import LAYOUT
from nemo_gym.verifiers.instructions.ifbench.wording import WORDING
from nemo_gym.verifiers.instructions.registry import Instructions

IFBENCH = Instructions(COUNTS | WORDING | LAYOUT | CUSTOM)

__all__ = ["IFBENCH"]
