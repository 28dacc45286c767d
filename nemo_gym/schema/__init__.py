"""Wire types shared by every room: Responses, Chat Completions, Anthropic Messages, episodes, observations.

Nothing here imports another room, and nothing imports a model vendor's SDK.
"""
