"""Which run a row belongs to, and the name reports give that run.

A run is one environment server's share of the rows, or one agent's where rows carry no server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from nemo_gym.results.records import ENVIRONMENT_SERVER, Record, agent_name


def rollout_run_key(row: Record) -> str | None:
    """The environment server stamped on the row, else its agent's name, else None."""
    stamp = row.get(ENVIRONMENT_SERVER)
    return stamp if isinstance(stamp, str) and stamp else agent_name(row)


def label_runs(agents_by_run: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """A name for each run, given the agents seen in it.

    A run is called by its agent when it has exactly one and that agent is in no other run. Otherwise, or where two
    runs would share a name, it keeps its key.
    """
    agents = {run: set(names) for run, names in agents_by_run.items()}
    runs_of_agent = Counter(name for names in agents.values() for name in names)
    labels = {run: _only_agent(names, runs_of_agent) or run for run, names in agents.items()}
    uses = Counter(labels.values())
    return {run: label if uses[label] == 1 else run for run, label in labels.items()}


def rollout_run_labels(rows: Iterable[Record]) -> dict[str, str]:
    """The label of every run in `rows`, by run key. Rows that name neither server nor agent belong to none."""
    agents: dict[str, set[str]] = {}
    for row in rows:
        run, agent = rollout_run_key(row), agent_name(row)
        if run is not None:
            agents.setdefault(run, set()).update([agent] if agent else [])
    return label_runs(agents)


def rollout_agent_label(row: Record, labels: Mapping[str, str] | None = None) -> str | None:
    """What reports call the run of `row`: its label in `labels`, else its agent's name, else its run key."""
    run = rollout_run_key(row)
    if run is not None and labels and run in labels:
        return labels[run]
    return agent_name(row) or run


def _only_agent(names: set[str], runs_of_agent: Counter[str]) -> str | None:
    if len(names) != 1:
        return None
    (name,) = names
    return name if runs_of_agent[name] == 1 else None
