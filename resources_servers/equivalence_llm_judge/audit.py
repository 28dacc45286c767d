"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row


def reference(row: Row) -> str:
    answer = row.get("expected_answer") or row["metadata"]["expected_answer"]
    return rf"\boxed{{{answer}}}" if "template_metadata" in row else str(answer)


def command(row: Row) -> str:
    return f"Answer:\n```bash\n{row['expected_answer']}\n```"


AUDIT = {
    "equivalence_llm_judge": Audit(reference=reference, judge=("[[A=B]]", "[[A!=B]]")),
    "lc_judge": Audit(reference=reference, judge=("CORRECT", "INCORRECT")),
    "nl2bash-equivalency": Audit(reference=command, judge=("[[A=B]]", "[[A!=B]]")),
}
