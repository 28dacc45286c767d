import threading

from nemo_gym.launch.rounds import Rounds


def test_it_looks_again_and_again_until_it_is_stopped() -> None:
    looks = threading.Semaphore(0)
    rounds = Rounds(looks.release, seconds=0.001, name="rounds")
    rounds.start()
    for _ in range(3):
        assert looks.acquire(timeout=30)
    rounds.stop()
    assert rounds.are_over and "rounds" not in [thread.name for thread in threading.enumerate()]


def test_the_first_look_is_after_the_pause() -> None:
    looks: list[int] = []
    rounds = Rounds(lambda: looks.append(1), seconds=60, name="rounds")
    rounds.start()
    rounds.stop()
    assert looks == []


def test_stopping_waits_for_a_look_under_way() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def look() -> None:
        begun.set()
        may_end.wait(30)
        ended.set()

    rounds = Rounds(look, seconds=0.001, name="rounds")
    rounds.start()
    assert begun.wait(30)
    threading.Timer(0.05, may_end.set).start()
    rounds.stop()
    assert ended.is_set()


def test_what_never_began_can_be_stopped_twice() -> None:
    rounds = Rounds(lambda: None, seconds=60, name="rounds")
    rounds.stop()
    rounds.stop()
    assert rounds.are_over
