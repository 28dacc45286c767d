"""Which class carries training tokens for which."""

from pydantic import BaseModel

from nemo_gym.schema.chat_completion import NeMoGymChatCompletionMessage, NeMoGymChatCompletionMessageForTraining
from nemo_gym.schema.items import TRAINING_ITEMS

RESPONSES_TO_TRAIN: dict[type[BaseModel], type[BaseModel]] = {
    **TRAINING_ITEMS,
    NeMoGymChatCompletionMessage: NeMoGymChatCompletionMessageForTraining,
}


def training_variant_of(cls: type[BaseModel]) -> type[BaseModel]:
    """The class that adds token fields to `cls`. Raises NotImplementedError naming a class that has none."""
    try:
        return RESPONSES_TO_TRAIN[cls]
    except KeyError:
        raise NotImplementedError(f"{cls.__name__} has no variant for training tokens") from None
