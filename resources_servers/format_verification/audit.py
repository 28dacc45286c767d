"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row

TEXTS = {
    "bullets_asterisk": "* boots\n* a bottle of water\n* bread\n* a map\n* a rain jacket",
    "numbering_step_hyphen": "Step 1 - Boil water.\nStep 2 - Warm the pot.\nStep 3 - Add tea.\nStep 4 - Wait and pour.",
    "key_value_double_colon": "Type :: rocky planet\nMoons :: 2\nDiameter :: 6,779 km\nYear :: 687 days",
    "table_pipes": (
        "| Vehicle | Speed | Power |\n|---|---|---|\n| Bicycle | 15 km/h | legs |\n| Car | 100 km/h | petrol |\n"
        "| Train | 200 km/h | electricity |"
    ),
    "prose_bold_terms": "In autumn **chlorophyll** decays, **carotenoids** show and **anthocyanins** form.",
}


def reference(row: Row) -> str | None:
    verifier = row["verifier"]
    if verifier["type"] == "string_match":
        return " ".join(f"So it is written {marker}." for marker in verifier["expected_markers"])
    return TEXTS.get(verifier["pattern_id"])


AUDIT = Audit(reference=reference)
