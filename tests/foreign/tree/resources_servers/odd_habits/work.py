def tripled(number: int) -> int:
    return 3 * number
