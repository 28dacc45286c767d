"""Small things that users of sandboxes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CPU_CAP_ENV_VARS = (
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "JULIA_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "GOMAXPROCS",
    "PYTHON_CPU_COUNT",
    "CARGO_BUILD_JOBS",
    "CMAKE_BUILD_PARALLEL_LEVEL",
)
"""What programs read that would otherwise start a thread for every CPU of the host."""


def cpu_cap_env(cpu: float | int | None) -> dict[str, str]:
    """Variables that keep programs to a sandbox's share of CPUs, at least one; nothing for None or no share."""
    if not cpu or cpu < 0:
        return {}
    return dict.fromkeys(CPU_CAP_ENV_VARS, str(max(1, int(cpu))))


def rewrite_image(image: str | None, rewrites: Sequence[Mapping[str, str]]) -> str | None:
    """The image with the first `{from, to}` applied whose `from` it starts with, as for a mirror of a registry."""
    if image is None:
        return None
    for rewrite in rewrites:
        if image.startswith(rewrite["from"]):
            return rewrite["to"] + image.removeprefix(rewrite["from"])
    return image
