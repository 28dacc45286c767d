"""A node of the cluster is lost while rollouts run, with every process on it."""

import pytest

from tests.e2e.harness import Workplace
from tests.ray.cluster import LocalCluster
from tests.ray.runs import AGENT, MODEL, RESOURCES, SERVERS, assert_complete, on, write_rows

RUN = ("eval", "run", *SERVERS, "-i", "rows.jsonl", "-o", "r.jsonl", "--concurrency", "6")


@pytest.mark.parametrize(("node", "lost"), [(0, (RESOURCES, MODEL)), (1, (AGENT,))], ids=["resources", "agent"])
def test_a_run_over_two_nodes_loses_one_and_completes(
    two_nodes: LocalCluster, place: Workplace, node: int, lost: tuple[str, ...]
) -> None:
    write_rows(place)
    gone = two_nodes.addresses[node]
    with place.started(*RUN, *on(two_nodes)) as run:
        run.wait_for("All 3 / 3 servers ready!")
        assert f"{RESOURCES} and {MODEL} on node 127.0.0.2; {AGENT} on node 127.0.0.3 (placement: ray)" in run.text, (
            run.text
        )
        run.wait_until(lambda: place.lines("r.jsonl") >= 3)
        two_nodes.lose(gone)
        assert run.ended() == 0, run.text
    assert_complete(place, run.text)
    (other,) = set(two_nodes.addresses) - {gone}
    for name in lost:
        assert f"was lost with its node {gone} before it was asked to." in run.text
        assert f"{name} moves to node {other} from {gone}." in run.text
        assert f"{name} serves again" in run.text
    assert "Retry 1 of rollout" in run.text, "what was under way there is run again"
    assert list(place.runs.glob("*/*")) == []


def test_without_restarts_the_loss_of_a_node_ends_the_run(two_nodes: LocalCluster, place: Workplace) -> None:
    write_rows(place)
    with place.started(*RUN, *on(two_nodes), "+server_restarts=0") as run:
        run.wait_for("All 3 / 3 servers ready!")
        run.wait_until(lambda: place.lines("r.jsonl") >= 3)
        two_nodes.lose(two_nodes.addresses[1])
        assert run.ended() == 1, run.text
    assert f"Server {AGENT} (pid " in run.text
    assert "was lost with its node 127.0.0.3 before it was asked to." in run.text
    assert "Traceback" not in run.text, run.text
