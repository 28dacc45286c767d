"""Captured tokens of a collection: on each record before it is written, out of the store once it is on the disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from nemo_gym.config.keys import AGENT_REF_KEY_NAME
from nemo_gym.rollouts.dispatch import RETRIES, CompletedRollout, with_own_capture_id
from nemo_gym.rollouts.failures import failure_class_of, is_no_result
from nemo_gym.rollouts.journal import Books
from nemo_gym.rollouts.keys import NG_NO_PERSIST_KEY
from nemo_gym.rollouts.rows import Row
from nemo_gym.serve.correlation import maybe_rollout_id_from_run_body
from nemo_gym.token_id_capture.config import (
    TokenIdCaptureConfig,
    token_id_capture_config,
    token_id_capture_enabled_for_agent,
)
from nemo_gym.token_id_capture.errors import TooManyMaskedError

if TYPE_CHECKING:
    from nemo_gym.token_id_capture.delivery import Delivery
    from nemo_gym.token_id_capture.protocols import TokenSource

Run: TypeAlias = Callable[[Row], Coroutine[Any, Any, CompletedRollout]]

_logger = logging.getLogger("nemo_gym.token_id_capture")


class NoTokenDelivery:
    """What a collection has that captures no tokens, or leaves them to the trainer."""

    def around(self, row: Row, run: Run) -> Coroutine[Any, Any, CompletedRollout]:
        return run(row)

    def recorded(self, completed: CompletedRollout) -> None: ...

    async def __aenter__(self) -> NoTokenDelivery:
        return self

    async def __aexit__(self, *_: object) -> None: ...


def token_delivery(
    global_config: Mapping[Any, Any], books: Books, prepare: Callable[[CompletedRollout], None]
) -> TokenDelivery | NoTokenDelivery:
    """As the config of the servers asks for it. `prepare` gives a result what it has to have before its tokens.

    Raises TokenCaptureConfigError.
    """
    config = token_id_capture_config(global_config)
    if not (config.enabled and config.rebuild_response):
        return NoTokenDelivery()
    from nemo_gym.token_id_capture.endpoints import build_source

    return TokenDelivery(config, global_config, build_source(config), books, prepare)


class TokenDelivery:
    """Finalises the rollouts of agents that take part, and retires those whose records are safe."""

    def __init__(
        self,
        config: TokenIdCaptureConfig,
        global_config: Mapping[Any, Any],
        source: TokenSource,
        books: Books,
        prepare: Callable[[CompletedRollout], None],
    ) -> None:
        self._config = config
        self._global_config = global_config
        self._source = source
        self._books = books
        self._prepare = prepare
        self._deliveries: dict[int, Delivery] = {}
        self._written: asyncio.Queue[Delivery | None] = asyncio.Queue()
        self._retiring: asyncio.Task[None] | None = None
        self._taking_part: dict[str | None, bool] = {}
        self._finalized = self._masked = 0

    async def __aenter__(self) -> TokenDelivery:
        self._retiring = asyncio.create_task(self._retire_written())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._written.put_nowait(None)
        if self._retiring is not None:
            await self._retiring
        await self._source.close()

    async def around(self, row: Row, run: Run) -> CompletedRollout:
        """Run a row, from a clean store to a result with tokens."""
        await self.begin(row)
        completed = await run(row)
        self._prepare(completed)
        await self.finalize(completed)
        return completed

    async def begin(self, row: Row) -> None:
        """Forget what an earlier run left under the ids of this rollout and its retries."""
        delete = getattr(self._source, "delete", None)
        rollout_id = maybe_rollout_id_from_run_body(row)
        if delete is None or rollout_id is None or not self._takes_part(row):
            return
        retried = (with_own_capture_id(row, number) for number in range(1, RETRIES + 1))
        retries = filter(None, map(maybe_rollout_id_from_run_body, retried))
        await asyncio.to_thread(_delete_all, delete, [rollout_id, *retries])

    async def finalize(self, completed: CompletedRollout) -> None:
        """Put the tokens on the result, if the agent takes part and there is a result."""
        result = completed.result
        if result.get(NG_NO_PERSIST_KEY) or is_no_result(result):
            return
        if not self._takes_part(completed.row):
            return
        from nemo_gym.token_id_capture.delivery import finalize_rollout_token_capture

        rollout_id = maybe_rollout_id_from_run_body(result)
        delivery = await finalize_rollout_token_capture(result, self._source, rollout_id=rollout_id)
        self._deliveries[id(completed)] = delivery

    def recorded(self, completed: CompletedRollout) -> None:
        """The result is written. Raises TooManyMaskedError when more of them than allowed can't be trained on."""
        delivery = self._deliveries.pop(id(completed), None)
        if delivery is None:
            return
        self._finalized += 1
        self._masked += delivery.masked
        if failure_class_of(completed.result) is None:
            self._written.put_nowait(delivery)
        self._check_masked()

    def _check_masked(self) -> None:
        allowed = self._config.max_mask_fraction
        if allowed is None or self._finalized < self._config.mask_fraction_min_samples:
            return
        if self._masked / self._finalized > allowed:
            raise TooManyMaskedError(
                f"{self._masked} of {self._finalized} rollouts have tokens that can't be trained on, more than "
                f"token_id_capture.max_mask_fraction {allowed} allows; _ng_token_capture of their records says why."
            )

    def _takes_part(self, row: Mapping[str, Any]) -> bool:
        agent = row.get(AGENT_REF_KEY_NAME)
        name = agent.get("name") if isinstance(agent, Mapping) else None
        known = self._taking_part.get(name)
        if known is None:
            known = token_id_capture_enabled_for_agent(self._global_config, name or "")
            self._taking_part[name] = known
        return known

    async def _retire_written(self) -> None:
        """Retire in batches: one wait for the disk for all records that were written meanwhile."""
        while (delivery := await self._written.get()) is not None:
            batch, is_last = [delivery], False
            with suppress(asyncio.QueueEmpty):
                while not is_last:
                    following = self._written.get_nowait()
                    is_last = following is None
                    batch += [following] if following is not None else []
            await self._retire(batch)
            if is_last:
                return

    async def _retire(self, batch: list[Delivery]) -> None:
        from nemo_gym.token_id_capture.delivery import retire_rollout_token_capture

        try:
            await self._books.synced()
            for delivery in batch:
                await retire_rollout_token_capture(delivery.rollout_id or "", self._source, delivery)
        except Exception as error:
            _logger.warning("Captured tokens of %d rollouts stay where they are: %r", len(batch), error)


def _delete_all(delete: Any, rollout_ids: list[str]) -> None:
    for rollout_id in rollout_ids:
        delete(rollout_id)
