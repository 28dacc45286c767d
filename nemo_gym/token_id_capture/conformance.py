"""Whether a sink, a source and a lineage store keep what the protocols promise; to run against one's own."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from nemo_gym.token_id_capture.errors import TokenCaptureError
from nemo_gym.token_id_capture.fingerprints import FINGERPRINT_VERSION, assistant_fingerprint, conversation_digest
from nemo_gym.token_id_capture.protocols import LineageResolver, TokenSink, TokenSource
from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry, stamp_lineage

Factory = Callable[[], Any]

_ASKED = [{"role": "user", "content": "What is two plus two?"}]
_SAID = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Four."}]}]


class ConformanceError(TokenCaptureError, AssertionError):
    """A check that failed, by name, and what was seen."""

    def __init__(self, check_name: str, detail: str) -> None:
        super().__init__(f"{check_name}: {detail}")
        self.check_name = check_name
        self.detail = detail


@dataclass
class _Bench:
    """The parts under test; each check works on a rollout of its own."""

    sink: TokenSink
    source: TokenSource
    lineage: LineageResolver | None
    lineage_factory: Factory | None
    rollout_id: str

    def entry(self, rollout_id: str, call_id: str = "call-1", tokens: tuple[int, ...] = (3, 4)) -> TokenEntry:
        entry = TokenEntry(
            rollout_id=rollout_id,
            model_call_id=call_id,
            prompt_token_ids=[1, 2],
            generation_token_ids=list(tokens),
            generation_log_probs=[-0.5] * len(tokens),
            output_items=_SAID,
            token_item_index=0,
            created_at=1.0,
            continuation_fingerprint=assistant_fingerprint([*_ASKED, *_SAID]),
            continuation_context_len=len(_ASKED),
            continuation_context_digest=conversation_digest(_ASKED),
            fingerprint_version=FINGERPRINT_VERSION,
        )
        return stamp_lineage(entry, status=ParentResolutionStatus.ROOT)


Check = Callable[[_Bench, str], Awaitable[None]]


async def run_conformance(
    sink_factory: Factory, source_factory: Factory, lineage_factory: Factory | None = None, *, rollout_id: str
) -> list[str]:
    """The names of the checks that passed, which are all that apply. Raises ConformanceError at the first violation.

    The factories make clients of one and the same store (plain or async). `rollout_id` begins the ids that are used.
    """
    sink, source = await _made(sink_factory), await _made(source_factory)
    lineage = await _made(lineage_factory) if lineage_factory else None
    bench = _Bench(sink, source, lineage, lineage_factory, rollout_id)
    passed = []
    for number, (name, check) in enumerate(_checks(bench).items()):
        try:
            await check(bench, f"{rollout_id}-{number}")
        except AssertionError as violation:
            raise ConformanceError(name, str(violation)) from violation
        except Exception as error:
            raise ConformanceError(name, f"raised {error!r}") from error
        passed.append(name)
    for endpoint in (sink, source, lineage):
        if endpoint is not None:
            await endpoint.close()
    return passed


def _checks(bench: _Bench) -> dict[str, Check]:
    checks: dict[str, Check] = {
        "put_then_freeze_visibility": _put_then_freeze,
        "idempotent_reput": _idempotent_reput,
        "conflicting_reput": _conflicting_reput,
        "mark_incomplete_durability": _mark_incomplete,
        "freeze_idempotency": _freeze_twice,
        "post_freeze_write_safety": _post_freeze_write,
        "conditional_retirement": _conditional_retirement,
    }
    if bench.lineage is not None:
        checks |= {"lineage_visibility": _lineage, "fresh_client_lineage_visibility": _fresh_lineage}
    if hasattr(bench.sink, "begin_call"):
        checks["begin_call_custody"] = _begin_call
    return checks


async def _made(factory: Factory) -> Any:
    made = factory()
    return await made if inspect.isawaitable(made) else made


def _require(holds: bool, detail: str) -> None:
    if not holds:
        raise AssertionError(detail)


async def _raises(work: Awaitable[Any]) -> bool:
    try:
        await work
    except Exception:
        return True
    return False


async def _put_then_freeze(bench: _Bench, rollout_id: str) -> None:
    entry = bench.entry(rollout_id)
    await bench.sink.put(entry)
    snapshot = await bench.source.freeze(rollout_id)
    _require(list(snapshot.entries) == [entry], "the snapshot does not hold the entry that was put")
    _require(not snapshot.incomplete, "the snapshot is incomplete although nothing is missing")


async def _idempotent_reput(bench: _Bench, rollout_id: str) -> None:
    for _ in range(2):
        await bench.sink.put(bench.entry(rollout_id))
    snapshot = await bench.source.freeze(rollout_id)
    _require(len(snapshot.entries) == 1, f"the same entry put twice is there {len(snapshot.entries)} times")
    _require(not snapshot.incomplete, "the same entry put twice makes the rollout incomplete")


async def _conflicting_reput(bench: _Bench, rollout_id: str) -> None:
    await bench.sink.put(bench.entry(rollout_id))
    _require(await _raises(bench.sink.put(bench.entry(rollout_id, tokens=(9,)))), "another entry of a call is accepted")
    snapshot = await bench.source.freeze(rollout_id)
    _require(snapshot.incomplete, "after conflicting entries the rollout is not incomplete")
    _require(
        [entry.generation_token_ids for entry in snapshot.entries] == [[3, 4]], "a conflicting entry replaced the first"
    )


async def _mark_incomplete(bench: _Bench, rollout_id: str) -> None:
    await bench.sink.put(bench.entry(rollout_id))
    await bench.sink.mark_incomplete(rollout_id, "call-2")
    _require((await bench.source.freeze(rollout_id)).incomplete, "a rollout that was marked is not incomplete")


async def _freeze_twice(bench: _Bench, rollout_id: str) -> None:
    await bench.sink.put(bench.entry(rollout_id))
    first, second = await bench.source.freeze(rollout_id), await bench.source.freeze(rollout_id)
    _require(first == second, "freezing again gives another snapshot")


async def _post_freeze_write(bench: _Bench, rollout_id: str) -> None:
    await bench.sink.put(bench.entry(rollout_id))
    frozen = await bench.source.freeze(rollout_id)
    _require(await _raises(bench.sink.put(bench.entry(rollout_id, "call-2"))), "a frozen rollout takes another call")
    await bench.sink.mark_incomplete(rollout_id, "call-2")
    dropped = await bench.source.drop(rollout_id, snapshot_id=frozen.snapshot_id, version=frozen.version)
    _require(not dropped, "a snapshot that became incomplete after it was taken can be dropped as it was")
    again = await bench.source.freeze(rollout_id)
    _require(again.incomplete and again.version != frozen.version, "a late loss does not show in a new version")


async def _conditional_retirement(bench: _Bench, rollout_id: str) -> None:
    await bench.sink.put(bench.entry(rollout_id))
    snapshot = await bench.source.freeze(rollout_id)
    wrong = await bench.source.drop(rollout_id, snapshot_id="another", version=snapshot.version)
    _require(not wrong, "a rollout is dropped under the wrong snapshot id")
    right = await bench.source.drop(rollout_id, snapshot_id=snapshot.snapshot_id, version=snapshot.version)
    _require(right, "a rollout is not dropped under its own snapshot id and version")
    _require(await _raises(bench.sink.put(bench.entry(rollout_id, "call-2"))), "a retired rollout takes another call")


async def _resolves(lineage: LineageResolver, rollout_id: str) -> None:
    found = await lineage.resolve(rollout_id, [*_ASKED, *_SAID, {"role": "user", "content": "And three?"}])
    _require(found.status is ParentResolutionStatus.RESOLVED, f"a continuation is {found.status} ({found.reason})")
    _require(found.parent_call_id == "call-1", f"the parent is {found.parent_call_id}")
    _require(found.parent_tokens == [1, 2, 3, 4], f"the parent's tokens are {found.parent_tokens}")
    root = await lineage.resolve(rollout_id, _ASKED)
    _require(root.status is ParentResolutionStatus.ROOT, "a request without history has a parent")


async def _put_for_lineage(bench: _Bench, rollout_id: str) -> None:
    entry = bench.entry(rollout_id)
    await bench.sink.put(entry)
    remember = getattr(bench.lineage, "put", None)
    if remember is not None:
        await remember(entry)


async def _lineage(bench: _Bench, rollout_id: str) -> None:
    assert bench.lineage is not None
    await _put_for_lineage(bench, rollout_id)
    await _resolves(bench.lineage, rollout_id)


async def _fresh_lineage(bench: _Bench, rollout_id: str) -> None:
    assert bench.lineage is not None and bench.lineage_factory is not None
    await _put_for_lineage(bench, rollout_id)
    if not bench.lineage.is_process_shared():
        return
    fresh = await _made(bench.lineage_factory)
    try:
        await _resolves(fresh, rollout_id)
    finally:
        await fresh.close()


async def _begin_call(bench: _Bench, rollout_id: str) -> None:
    begin_call = bench.sink.begin_call  # type: ignore[attr-defined]
    await begin_call(rollout_id, "call-1")
    await begin_call(rollout_id, "call-2")
    await bench.sink.put(bench.entry(rollout_id))
    _require((await bench.source.freeze(rollout_id)).incomplete, "a call that was begun and never kept is not missed")
