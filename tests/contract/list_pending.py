"""`python -m tests.contract.list_pending`: rows that differ, to read or to write into pending.txt (`--names`)."""

import sys

from tests.contract.differences import differences
from tests.contract.surface import rows

for row in rows():
    if wrong := differences(row):
        print(row.id if "--names" in sys.argv else f"{row.id}: {'; '.join(wrong)}")
