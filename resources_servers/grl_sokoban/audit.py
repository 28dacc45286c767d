"""What the audit of this environment knows."""

from random import Random

from nemo_gym.audit import Audit, Replies, Row


def reference(row: Row) -> Replies:
    from resources_servers.grl_sokoban.levels import make_level
    from resources_servers.grl_sokoban.solver import shortest_solution

    rows, columns = row["dim_room"]
    level = make_level(Random(row["seed"]), rows, columns, row["num_boxes"], 100)
    solution = None if level is None else shortest_solution(level)
    return None if solution is None else [f"<action>{action}</action>" for action in solution]


AUDIT = Audit(
    reference=reference,
    full=10.0,
    overrides=(
        "++grl_sokoban.resources_servers.grl_sokoban.on_invalid_action=penalty",
        "++grl_sokoban_gymnasium_agent.responses_api_agents.gymnasium_agent.max_steps=20",
    ),
)
