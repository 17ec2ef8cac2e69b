"""When an outage of the federated demo begins and ends, and what it prints."""

from dataclasses import dataclass, field

from leveret.demo.outage import Outage


@dataclass
class Scene:
    """An outage with a clock that the test moves."""

    now_s: float = 0.0
    done: list[str] = field(default_factory=list)

    def outage(self) -> Outage:
        return Outage(
            *("JFK", "link cut", "link restored", 0.25, 2.0),
            begin=lambda: self.done.append("cut"),
            end=lambda: self.done.append("restore"),
        )

    def step(self, outage: Outage, confirmed: int, crossed: int = 0, is_up: bool = True) -> str:
        return outage.step(lambda: self.now_s, confirmed, 1_000, crossed, is_up)


def test_it_begins_in_the_midst_of_traffic_ends_after_its_time_and_is_over_when_all_has_come() -> None:
    scene = Scene()
    outage = scene.outage()
    assert scene.step(outage, 249) == ""
    assert not outage.is_on
    scene.now_s = 3.0
    assert scene.step(outage, 250, 240) == "JFK: link cut, 250 of 1,000 flights confirmed there"
    assert outage.is_on
    scene.now_s = 4.9
    assert scene.step(outage, 500, 240, is_up=False) == ""
    scene.now_s = 5.1
    assert scene.step(outage, 600, 240, is_up=False) == "JFK: link restored, 360 messages are waiting"
    assert not outage.is_on
    assert scene.done == ["cut", "restore"]
    scene.now_s = 6.0
    assert scene.step(outage, 800, 599) == ""
    assert scene.step(outage, 800, 600, is_up=False) == ""
    assert scene.step(outage, 800, 600) == "JFK: caught up 0.9 s later"
    assert scene.step(outage, 1_000, 1_000) == ""
    assert scene.done == ["cut", "restore"]
    assert outage.story() == (
        "JFK: link cut at 3.0 s, link restored at 5.1 s with 360 messages waiting, caught up after 0.9 s"
    )


def test_what_never_came_is_not_told_as_caught_up() -> None:
    scene = Scene()
    outage = scene.outage()
    assert outage.story() == "JFK: nothing happened"
    scene.step(outage, 300)
    scene.now_s = 2.0
    scene.step(outage, 300, 299)
    assert outage.story() == "JFK: link cut at 0.0 s, link restored at 2.0 s with 1 messages waiting"


def test_an_airport_without_flights_has_its_outage_too() -> None:
    scene = Scene()
    outage = scene.outage()
    assert outage.step(lambda: 0.0, 0, 0, 0, True) == "JFK: link cut, 0 of 0 flights confirmed there"
