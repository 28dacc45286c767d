"""A calendar kept over a conversation, whose events have constraints and must not overlap."""
