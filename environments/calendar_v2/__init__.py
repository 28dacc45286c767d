"""A calendar kept over a longer conversation, with changes of mind."""
