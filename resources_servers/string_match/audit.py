"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row


def reference(row: Row) -> str:
    answer = row["expected_answer"]
    said = {"boxed": rf"\boxed{{{answer}}}", "last_line": f"Let me think.\n{answer}", "full_response": answer}
    return str(said.get(row.get("extraction_mode", "final_answer"), f"Final answer: {answer}"))


AUDIT = Audit(reference=reference)
