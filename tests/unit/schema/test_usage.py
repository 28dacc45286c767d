"""Sums of token usage, where unknown is not zero."""

from typing import Any

from nemo_gym.openai_utils import NeMoGymResponseUsage, accumulate_response_usage


def usage(cached: int | None = 1, reasoning: int | None = 2, **extra: Any) -> NeMoGymResponseUsage:
    return NeMoGymResponseUsage.model_validate(
        {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": 15,
            **extra,
        }
    )


def test_the_sum_of_nothing_is_zero() -> None:
    total = NeMoGymResponseUsage.sum_from_list([])

    assert (total.input_tokens, total.output_tokens, total.total_tokens) == (0, 0, 0)
    assert (total.input_tokens_details.cached_tokens, total.output_tokens_details.reasoning_tokens) == (0, 0)


def test_the_sum_of_some() -> None:
    total = NeMoGymResponseUsage.sum_from_list([usage(), usage(3, 4), usage()])

    assert (total.input_tokens, total.output_tokens, total.total_tokens) == (30, 15, 45)
    assert (total.input_tokens_details.cached_tokens, total.output_tokens_details.reasoning_tokens) == (5, 8)


def test_one_unknown_detail_makes_its_sum_unknown() -> None:
    total = NeMoGymResponseUsage.sum_from_list([usage(), usage(None, 1), usage()])

    assert total.input_tokens_details.cached_tokens is None
    assert total.output_tokens_details.reasoning_tokens == 5
    assert total.input_tokens == 30


def test_numbers_a_provider_adds_are_summed_and_the_rest_is_kept() -> None:
    total = NeMoGymResponseUsage.sum_from_list([usage(cost=0.5, tier="a"), usage(), usage(cost=0.25, tier="b")])

    assert total.model_dump()["cost"] == 0.75
    assert total.model_dump()["tier"] == "a"


def test_accumulating_treats_none_as_unknown() -> None:
    one = usage()

    assert accumulate_response_usage(None, None) is None
    assert accumulate_response_usage(one, None) == accumulate_response_usage(None, one) == one
    both = accumulate_response_usage(one, usage(2))
    assert both is not None and both.input_tokens_details.cached_tokens == 3


def test_accumulating_shares_nothing() -> None:
    one = usage()
    total = accumulate_response_usage(None, one)

    assert total is not None
    one.input_tokens_details.cached_tokens = 99
    assert total.input_tokens_details.cached_tokens == 1
