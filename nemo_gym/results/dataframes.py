"""The statistics of a reward profile over pandas data, for code that has its numbers there."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from nemo_gym.results.errors import MissingPackageError
from nemo_gym.results.metric_names import Stat

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Series: TypeAlias = Any
DataFrame: TypeAlias = Any
DataFrameGroupBy: TypeAlias = Any

STATS = (Stat.MEAN, Stat.MAX, Stat.MIN, Stat.MEDIAN, Stat.STD, Stat.HISTOGRAM)
_BINS = 64


@dataclass(frozen=True)
class Histogram:
    """Counts of values between consecutive `bins`, where Weights & Biases isn't installed to make its own."""

    histogram: NDArray[np.int64]
    bins: NDArray[np.float64]


def histogram(data: Series) -> Any:
    """A histogram of the values that aren't missing, of Weights & Biases if that is installed; None for no values."""
    import numpy as np

    values = np.asarray(data.dropna(), dtype=np.float64)
    if not len(values):
        return None
    counts = np.histogram(values, bins=_BINS)
    try:
        wandb = importlib.import_module("wandb")
    except ImportError:
        return Histogram(*counts)
    return wandb.Histogram(np_histogram=counts)


def describe_dataframe(df: DataFrame) -> DataFrame:
    """Statistics (rows) of every column of numbers, missing values left out.

    Where every deviation is undefined, as for one row, columns without missing values get 0.
    """
    pandas = _pandas()
    numbers = df.select_dtypes(include=["number", "bool"]).astype(float)
    std = numbers.std()
    if std.isna().all():
        std[numbers.notna().all()] = 0.0
    columns = {
        Stat.MEAN: numbers.mean(),
        Stat.MAX: numbers.max(),
        Stat.MIN: numbers.min(),
        Stat.MEDIAN: numbers.median(),
        Stat.STD: std,
        Stat.HISTOGRAM: pandas.Series({name: histogram(numbers[name]) for name in numbers}, dtype=object),
    }
    return pandas.DataFrame([columns[stat].astype(object) for stat in STATS], index=[stat.value for stat in STATS])


def group_metrics(grouped_df: DataFrameGroupBy) -> list[dict[str, Any]]:
    """One entry per group: its keys, then `<statistic>/<column>`, statistic by statistic, what is undefined left out.

    Columns that begin with `_` and those grouped by are not described.
    """
    pandas = _pandas()
    keys = list(grouped_df.size().index.names)
    entries = []
    for values, frame in grouped_df:
        columns = [name for name in frame.columns if not str(name).startswith("_") and name not in keys]
        described = describe_dataframe(frame[columns])
        statistics = {
            f"{stat}/{name}": described.at[stat, name]
            for stat in described.index
            for name in described.columns
            if not _is_missing(pandas, described.at[stat, name])
        }
        identity = values if isinstance(values, tuple) else (values,)
        entries.append({**dict(zip(keys, identity, strict=False)), **statistics})
    return entries


def _is_missing(pandas: Any, value: Any) -> bool:
    return value is None or (isinstance(value, float) and bool(pandas.isna(value)))


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise MissingPackageError(
            "Reward profiles of data frames need pandas: install it, as with `pip install nemo-gym[compat]`."
        ) from error
