"""From the calls of a rollout to chains: sequences of calls, each of which begins with all tokens of the one before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nemo_gym.token_id_capture.errors import TokenCaptureError
from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry, cumulative_tokens
from nemo_gym.token_id_capture.tokens import compute_digest

PREFIX_MERGING = "prefix_merging"


@dataclass
class BuildNotes:
    """What was noticed while building. Ids are those of model calls."""

    calls: int = 0
    conflicting_duplicates: list[str] = field(default_factory=list)
    unexpandable_deltas: list[str] = field(default_factory=list)
    empty_generations: list[str] = field(default_factory=list)
    parent_link_failures: list[str] = field(default_factory=list)
    unresolved_parents: list[str] = field(default_factory=list)
    discarded_retries: list[str] = field(default_factory=list)
    unresolved_retries: list[str] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    attributed: bool = False
    terminal_is_broken: bool = False
    generated_tokens: int = 0


@dataclass
class BuildOutput:
    """Chains (the main one first; entries with whole prompts, root first), and ids of calls that are in none."""

    chains: list[list[TokenEntry]]
    quarantined: list[str]
    notes: BuildNotes

    @property
    def main_chain(self) -> list[TokenEntry]:
        return self.chains[0] if self.chains else []


@dataclass
class _Graph:
    """Calls and what each continues; None for those that begin a chain."""

    entries: dict[str, TokenEntry]
    parents: dict[str, str | None]
    fragments: set[str]

    def path_to(self, call_id: str) -> list[TokenEntry]:
        path = []
        current: str | None = call_id
        while current is not None:
            path.append(self.entries[current])
            current = self.parents[current]
        return path[::-1]

    def children(self) -> dict[str, list[str]]:
        children: dict[str, list[str]] = defaultdict(list)
        for call_id, parent in self.parents.items():
            if parent is not None:
                children[parent].append(call_id)
        return children

    def without(self, call_ids: Iterable[str]) -> None:
        """Take calls out, with all that continues them."""
        children, rest = self.children(), list(call_ids)
        while rest:
            call_id = rest.pop()
            rest += children[call_id]
            self.entries.pop(call_id, None)
            self.parents.pop(call_id, None)
            self.fragments.discard(call_id)


def run_builder(
    entries: Sequence[TokenEntry], builder: str = PREFIX_MERGING, terminal_call_id: str | None = None
) -> BuildOutput:
    """Chains of the calls. `terminal_call_id` is the call that the rollout is known to end with.

    Raises TokenCaptureError for a builder that doesn't exist.
    """
    if builder != PREFIX_MERGING:
        raise TokenCaptureError(f"There is no builder {builder!r}; {PREFIX_MERGING} is the one.")
    notes = BuildNotes()
    unique = _without_duplicates(entries, notes)
    notes.calls = len(unique)
    whole = _expanded(unique, notes)
    generating = [entry for entry in whole.values() if _has_generation(entry, notes)]
    notes.generated_tokens = sum(len(entry.generation_token_ids) for entry in generating)
    graph = _linked(sorted(generating, key=lambda e: (len(e.prompt_token_ids), e.model_call_id)), notes)
    terminal = terminal_call_id if terminal_call_id in graph.entries else None
    _settle_retries(graph, terminal, notes)
    chains = _chains(graph, terminal, notes)
    notes.terminal_is_broken = terminal_call_id is not None and not notes.attributed
    kept = {entry.model_call_id for chain in chains for entry in chain}
    quarantined = sorted(set(unique) - kept - set(notes.empty_generations))
    return BuildOutput(chains, quarantined, notes)


def _without_duplicates(entries: Sequence[TokenEntry], notes: BuildNotes) -> dict[str, TokenEntry]:
    unique: dict[str, TokenEntry] = {}
    for entry in entries:
        first = unique.setdefault(entry.model_call_id, entry)
        if first is not entry and first != entry:
            notes.conflicting_duplicates.append(entry.model_call_id)
    return unique


def _expanded(unique: dict[str, TokenEntry], notes: BuildNotes) -> dict[str, TokenEntry]:
    """The calls with whole prompts; deltas whose parents can't give them are left out."""
    whole: dict[str, TokenEntry] = {}
    waiting = dict(unique)
    while waiting:
        ready = [e for e in waiting.values() if not e.prompt_is_delta or e.parent_call_id in whole]
        if not ready:
            break
        for entry in ready:
            del waiting[entry.model_call_id]
            expanded = _with_whole_prompt(entry, whole)
            if expanded is None:
                notes.unexpandable_deltas.append(entry.model_call_id)
            else:
                whole[entry.model_call_id] = expanded
    notes.unexpandable_deltas += sorted(waiting)
    return whole


def _with_whole_prompt(entry: TokenEntry, whole: dict[str, TokenEntry]) -> TokenEntry | None:
    if not entry.prompt_is_delta:
        return entry
    tokens = cumulative_tokens(entry, cumulative_tokens(whole[entry.parent_call_id or ""]))
    if entry.digest is not None and compute_digest(tokens) != entry.digest:
        return None
    prompt = tokens[: len(tokens) - len(entry.generation_token_ids)]
    return entry.model_copy(update={"prompt_token_ids": prompt, "prompt_is_delta": False})


def _has_generation(entry: TokenEntry, notes: BuildNotes) -> bool:
    if entry.generation_token_ids:
        return True
    notes.empty_generations.append(entry.model_call_id)
    return False


def _linked(ordered: list[TokenEntry], notes: BuildNotes) -> _Graph:
    graph = _Graph({}, {}, set())
    every = {entry.model_call_id: entry for entry in ordered}
    for entry in ordered:
        parent = _parent_of(entry, every, graph, notes)
        graph.entries[entry.model_call_id] = entry
        graph.parents[entry.model_call_id] = parent
    return graph


def _parent_of(entry: TokenEntry, every: dict[str, TokenEntry], graph: _Graph, notes: BuildNotes) -> str | None:
    call_id, recorded = entry.model_call_id, entry.parent_call_id
    if entry.parent_resolution is ParentResolutionStatus.ROOT:
        return None
    if entry.parent_resolution is ParentResolutionStatus.UNRESOLVED:
        notes.unresolved_parents.append(call_id)
        graph.fragments.add(call_id)
        return None
    if recorded is not None and recorded in every:
        if recorded in graph.entries and _begins_with(entry, graph.entries[recorded]):
            return recorded
        notes.parent_link_failures.append(call_id)
        graph.fragments.add(call_id)
        return None
    parent = _longest_prefix(entry, graph.entries.values())
    if parent is None and recorded is not None:
        notes.parent_link_failures.append(call_id)
        graph.fragments.add(call_id)
    return parent


def _begins_with(entry: TokenEntry, parent: TokenEntry) -> bool:
    length = len(parent.prompt_token_ids) + len(parent.generation_token_ids)
    prefix = entry.prompt_token_ids[:length]
    if len(prefix) < length:
        return False
    if parent.digest is not None:
        return compute_digest(prefix) == parent.digest
    return prefix == cumulative_tokens(parent)


def _longest_prefix(entry: TokenEntry, candidates: Iterable[TokenEntry]) -> str | None:
    """The call with the most tokens among those whose tokens the prompt begins with, if there is only one."""
    fitting = [
        (len(other.prompt_token_ids) + len(other.generation_token_ids), other.model_call_id)
        for other in candidates
        if _begins_with(entry, other)
    ]
    longest = max((length for length, _ in fitting), default=0)
    ids = [call_id for length, call_id in fitting if length == longest]
    return ids[0] if len(ids) == 1 else None


def _settle_retries(graph: _Graph, terminal: str | None, notes: BuildNotes) -> None:
    """Of calls asked with the same prompt, keep those that the rollout went on with."""
    on_path = {entry.model_call_id for entry in graph.path_to(terminal)} if terminal else set()
    extended = {parent for parent in graph.parents.values() if parent is not None}
    discarded: set[str] = set()
    for siblings in _retry_groups(graph):
        keep = siblings & on_path or siblings & extended
        if not keep:
            notes.unresolved_retries += sorted(siblings)
            keep = {min(siblings, key=lambda call_id: _age(graph.entries[call_id]))}
        discarded |= siblings - keep
    notes.discarded_retries = sorted(discarded)
    graph.without(discarded)


def _retry_groups(graph: _Graph) -> list[set[str]]:
    groups: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    for call_id, entry in graph.entries.items():
        groups[graph.parents[call_id], compute_digest(entry.prompt_token_ids)].add(call_id)
    return [group for group in groups.values() if len(group) > 1]


def _chains(graph: _Graph, terminal: str | None, notes: BuildNotes) -> list[list[TokenEntry]]:
    """A chain for each call that no other continues, the main one first."""
    extended = {parent for parent in graph.parents.values() if parent is not None}
    notes.roots = sorted(call_id for call_id, parent in graph.parents.items() if parent is None)
    chains = [graph.path_to(call_id) for call_id in graph.entries if call_id not in extended]
    chains.sort(key=lambda chain: (_age(chain[0]), -len(chain), _age(chain[-1])))
    if terminal is None or terminal not in graph.entries:
        return chains
    main = graph.path_to(terminal)
    if any(entry.model_call_id in graph.fragments for entry in main):
        return chains
    notes.attributed = True
    return [main, *(chain for chain in chains if chain != main)]


def _age(entry: TokenEntry) -> tuple[float, str]:
    return entry.created_at, entry.model_call_id
