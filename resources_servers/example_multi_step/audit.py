"""What the audit of this environment knows."""

from collections.abc import Generator

from nemo_gym.audit import Audit, Replies, Reply, Row, call


def reference(row: Row) -> Generator[Reply, str, None]:
    for synonym in row["expected_synonyms"]:
        yield call("get_synonym_value", synonym=synonym)
    yield call("extract_synonym_values", synonym_values=row["expected_synonym_values"])


def sorted_values(row: Row) -> Replies:
    return [
        call("extract_synonym_values", synonym_values=sorted(row["expected_synonym_values"], reverse=True)),
        "Done.",
    ]


def with_the_term(row: Row) -> Replies:
    values = [*row["expected_synonym_values"], row["minefield_label_value"]]
    return [call("extract_synonym_values", synonym_values=values), "Done."]


def corrected(row: Row) -> Replies:
    """The right values, and then others: the last ones count."""
    right = call("extract_synonym_values", synonym_values=row["expected_synonym_values"])
    return [(right, call("extract_synonym_values", synonym_values=[])), "Done."]


AUDIT = Audit(
    reference=reference,
    tricks={"values in another order": sorted_values, "the term as well": with_the_term, "taken back": corrected},
)
