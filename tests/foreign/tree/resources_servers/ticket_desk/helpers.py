def normalised(title: str) -> str:
    return " ".join(title.lower().split())
