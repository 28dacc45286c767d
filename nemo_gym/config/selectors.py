"""From a name on the command line to the config file it means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nemo_gym.config.aliases import LEGACY_CONFIG_PATH_ALIASES, LEGACY_ENVIRONMENT_ALIASES
from nemo_gym.config.catalog import benchmark_names, component_names, config_stems, group_members
from nemo_gym.config.facts import kept_facts
from nemo_gym.config.hints import closest
from nemo_gym.config.keys import RESOURCES_SERVERS, RESPONSES_API_AGENTS, RESPONSES_API_MODELS
from nemo_gym.config.notices import notify, warn
from nemo_gym.config.roots import component_search_roots
from nemo_gym.errors import UsageError

BENCHMARKS = "benchmarks"
ENVIRONMENTS = "environments"
_SHOWN_FLAVORS = 5


class SelectorError(UsageError, ValueError):
    """A name that selects nothing."""


@dataclass(frozen=True)
class _Kind:
    """How the values of one flag map to files."""

    folder: str
    subfolder: str = ""
    default_flavor: str | None = None

    def path(self, name: str, flavor: str) -> Path:
        """Relative to a root."""
        return Path(self.folder, name, self.subfolder, f"{flavor}.yaml")


_KINDS = {
    "--benchmark": _Kind(BENCHMARKS, default_flavor="config"),
    "--environment": _Kind(ENVIRONMENTS, default_flavor="config"),
    "--resources-server": _Kind(RESOURCES_SERVERS, "configs"),
    "--model-type": _Kind(RESPONSES_API_MODELS, "configs"),
    "--agent-type": _Kind(RESPONSES_API_AGENTS, "configs"),
}


def resolve_selector(flag: str, value: str) -> Path:
    """The absolute path of the config that `flag value` means, for a value `NAME` or `NAME/FLAVOR`.

    The first root that has it wins; others are warned about. Raises SelectorError when none has.
    """
    kind = _KINDS[flag]
    value = value.removeprefix(f"{kind.folder}/")  # as lists name some
    canonical = LEGACY_ENVIRONMENT_ALIASES.get(value) if kind.folder == ENVIRONMENTS else None
    if canonical is not None:
        warn(f"the environment `{value}` is now called `{canonical}`: use that name.")
        value = canonical
    for relative in [*_candidates(kind, value), *_only_flavor(kind, value)]:
        found = _in_roots(relative)
        if not found and (renamed := LEGACY_CONFIG_PATH_ALIASES.get(relative.as_posix())):
            found = _in_roots(Path(renamed))
            if found:
                warn(f"the config {relative} is now {renamed}: use that name.")
        if found:
            _tell_of_shadowed(flag, value, found)
            _tell_of_choice(kind, flag, value, found[0])
            return found[0]
    raise _not_found(flag, kind, value)


def selection_of(name: str) -> str | None:
    """The flag with its value that selects the component of exactly this name, `mcqa` or `resources_servers/mcqa`;
    None where there is none."""
    for flag, kind in _KINDS.items():
        value = name.removeprefix(f"{kind.folder}/")
        candidates = [*_candidates(kind, value), *_only_flavor(kind, value)]
        if value and any(map(_in_roots, candidates)):
            return f"{flag} {value}"
    return None


def _candidates(kind: _Kind, value: str) -> list[Path]:
    """The files a value may mean, relative to a root, best first."""
    name, _, flavor = value.partition("/")
    if kind.default_flavor is None:
        return [kind.path(name, flavor or name)]
    if not flavor:
        return [kind.path(name, kind.default_flavor)]
    head, _, tail = value.rpartition("/")
    return [kind.path(value, kind.default_flavor), kind.path(head, tail)]


def _only_flavor(kind: _Kind, value: str) -> list[Path]:
    """The file a bare name means for want of another: a component's only config, helpers aside."""
    flavors = [] if "/" in value else _flavors(kind, value)
    return [kind.path(value, flavors[0])] if len(flavors) == 1 else []


def _flavors(kind: _Kind, name: str) -> list[str]:
    """The configs of a component that can be selected; a resources server's helpers and a benchmark's can't."""
    stems = config_stems(kind.folder, name, kind.subfolder)
    with kept_facts() as facts:
        told = {stem: [facts.of(path) for path in _in_roots(kind.path(name, stem))] for stem in stems}
    if kind.folder == BENCHMARKS:
        return [stem for stem in stems if any(each.benchmarks == 1 for each in told[stem])]
    if kind.folder == RESOURCES_SERVERS:
        defining = [stem for stem in stems if any(RESOURCES_SERVERS in each.server_types for each in told[stem])]
        return defining or stems
    return stems


def _tell_of_choice(kind: _Kind, flag: str, value: str, found: Path) -> None:
    if "/" not in value and found.stem != (kind.default_flavor or value):
        notify(f"{flag} {value} means {value}/{found.stem}, its only config.")


def _in_roots(relative: Path) -> list[Path]:
    """That file under every root that has it, each file once."""
    found: dict[Path, Path] = {}
    for root in component_search_roots():
        if (root / relative).is_file():
            found.setdefault((root / relative).resolve(), (root / relative).absolute())
    return list(found.values())


def _tell_of_shadowed(flag: str, value: str, found: list[Path]) -> None:
    if len(found) > 1:
        others = ", ".join(map(str, found[1:]))
        warn(f"{flag} {value} means {found[0]}, which hides {others}: pass --config to choose another.")


def _not_found(flag: str, kind: _Kind, value: str) -> SelectorError:
    if value.endswith((".yaml", ".yml")):
        return SelectorError(f"{flag} takes a name, not a file: pass {value} with --config.")
    elsewhere = selection_of(value)
    suggested = [elsewhere] if elsewhere else [f"{flag} {suggestion}" for suggestion in _suggestions(kind, value)]
    meant = " or ".join(f"`{each}`" for each in suggested)
    hint = f" Did you mean {meant}?" if meant else ""
    implied = _candidates(kind, value)[-1]
    folders = [root / kind.folder for root in component_search_roots()]
    existing = [str(folder) for folder in folders if folder.is_dir()]
    where = f"Configs of this kind are in {', '.join(existing)}." if existing else f"There is no {kind.folder} folder."
    return SelectorError(f"{flag} {value}: there is no {implied}.{hint} {where}")


def _suggestions(kind: _Kind, value: str) -> list[str]:
    name, _, flavor = value.partition("/")
    if kind.folder == BENCHMARKS:
        members = group_members(value)
        return _some(min(members, key=len) if members else closest(value, benchmark_names()))
    flavors = _flavors(kind, name)
    if not flavors:
        similar = closest(name, component_names(kind.folder))
        return _some(f"{similar}/{flavor}" if similar and flavor else similar)
    similar = closest(flavor, flavors) if flavor else None
    return [f"{name}/{known}" for known in ([similar] if similar else flavors[:_SHOWN_FLAVORS])]


def _some(suggestion: str | None) -> list[str]:
    return [suggestion] if suggestion else []
