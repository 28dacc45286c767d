"""Instructions whose following a program can check: how many words, which letters, what layout.

`TRAINING` has those of IFEval (https://arxiv.org/abs/2311.07911) and those that IFTrain adds to them, `IFBENCH` those
of IFBench (https://arxiv.org/abs/2507.02833):

    from nemo_gym.verifiers.instructions import IFBENCH, TRAINING

    TRAINING.follows("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "One two three.")

Words of rows are regular expressions for some of them: check in a worker process.
"""

from nemo_gym.verifiers.instructions.ifbench import IFBENCH
from nemo_gym.verifiers.instructions.ifeval import IFEVAL
from nemo_gym.verifiers.instructions.language import MissingLibraryError
from nemo_gym.verifiers.instructions.registry import InstructionError, Instructions
from nemo_gym.verifiers.instructions.training import TRAINING

__all__ = ["IFBENCH", "IFEVAL", "TRAINING", "InstructionError", "Instructions", "MissingLibraryError"]
