"""Garbage collection in processes that parse large JSON."""

import gc
from collections.abc import Iterator

import pytest

from nemo_gym.serve.garbage import relax_collection


@pytest.fixture(autouse=True)
def settings_come_back() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_many_small_objects_start_few_collections() -> None:
    relax_collection()
    collections: list[str] = []
    gc.callbacks.append(lambda phase, _: collections.append(phase))
    try:
        kept = [{"logprob": [number]} for number in range(40_000)]
    finally:
        gc.callbacks.pop()
    assert len(kept) == 40_000
    assert collections.count("start") <= 2


def test_what_exists_is_left_alone_and_new_garbage_is_not() -> None:
    relax_collection()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
    ring: list[object] = []
    ring.append(ring)
    del ring
    assert gc.collect() > 0
