"""How often Python looks for cyclic garbage in a process that parses large JSON.

A body with 65,536 log-probs is as many small dicts, none of them cyclic. With the interpreter's defaults the collector
walks them, and everything imported, again and again: parsing then takes three times as long.
"""

import gc

THRESHOLDS = (50_000, 20, 50)


def relax_collection() -> None:
    """Keep what exists now out of every later collection, and collect the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
