"""What the audit of this environment knows."""

from collections.abc import Generator

from nemo_gym.audit import Audit, Reply, Row, call


def reference(row: Row) -> Generator[Reply, str, None]:
    seen = yield call("get_weather", city=row["verifier_metadata"]["expected_city"])
    yield seen


AUDIT = Audit(reference=reference)
