"""Writing the rows of a type's data sets into one file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from nemo_gym.datasets.declared import DeclaredDataset
from nemo_gym.datasets.errors import DatasetError
from nemo_gym.datasets.rows import RowConverter, lines_of, row_on
from nemo_gym.datasets.validation import SchemaCheck

if TYPE_CHECKING:
    from omegaconf import DictConfig

Check = Literal["off", "warn", "error"]


class Collator:
    """Writes data sets of one type; tasks are numbered over all of them."""

    def __init__(self, config: DictConfig | Mapping[str, Any], check: Check) -> None:
        self._config = config
        self._check = check
        self._tasks = 0

    def write(self, dataset: DeclaredDataset, target: IO[bytes]) -> None:
        """Append the data set's collated rows, each as often as it declares.

        Raises DatasetError for a line that can't be read or converted, and for rows that don't fit their schema where
        that counts as an error.
        """
        converter = RowConverter(dataset)
        schema = SchemaCheck(self._config, dataset, self._check)
        for number, line in lines_of(dataset.path):
            row = row_on(line, dataset.path, number)
            schema.see(number, row)
            converted = converter.convert(row, f"{dataset.path}, line {number}", self._tasks)
            target.write((json.dumps(converted) + "\n").encode() * dataset.entry.num_repeats)
            self._tasks += 1
        converter.warn_of_dropped_agents()
        schema.finish()


class PreparedNames:
    """Names for the prepared files of a run's data sets; no two are the same."""

    def __init__(self) -> None:
        self._used: set[Path] = set()

    def of(self, dataset: DeclaredDataset) -> Path:
        path = next(path for path in self._candidates(dataset) if path not in self._used)
        self._used.add(path)
        return path

    @staticmethod
    def _candidates(dataset: DeclaredDataset) -> Iterator[Path]:
        path = dataset.written_path
        instance, name = dataset.instance.name, dataset.entry.name
        endings = ["", f".{instance}", f".{instance}.{name}"]
        yield from (path.with_name(f"{path.stem}_prepare{ending}.jsonl") for ending in endings)
        yield from (path.with_name(f"{path.stem}_prepare{endings[-1]}.{number}.jsonl") for number in count(2))


def collate_type(
    config: DictConfig | Mapping[str, Any],
    datasets: Sequence[DeclaredDataset],
    output: Path,
    check: Check,
    names: PreparedNames,
) -> list[Path]:
    """Write each data set's prepared file, and all of them into `output`; returns the prepared files."""
    sources = {dataset.path.resolve() for dataset in datasets}
    if output.resolve() in sources:
        raise DatasetError(f"{output} is one of the files that are collated into it: choose another output folder.")
    collator = Collator(config, check)
    prepared = []
    with replacing(output) as whole:
        for dataset in datasets:
            path = names.of(dataset)
            with replacing(path) as part:
                collator.write(dataset, part)
            with path.open("rb") as part:
                shutil.copyfileobj(part, whole)
            prepared.append(path)
    return prepared


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes this name when it is complete. Raises DatasetError when it can't be written there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise DatasetError(f"{path} can't be written ({error.strerror}): choose another output folder.") from error
    finally:
        temporary.unlink(missing_ok=True)
