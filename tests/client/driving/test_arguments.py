"""client/driving/arguments.py: topics that look like patterns of MQTT, NATS or Redis."""

import asyncio
import warnings

import pytest

from kcast.client import aio, blocking
from kcast.client.cluster import lab
from kcast.client.driving.arguments import WildcardWarning, explanation, looks_like_a_pattern
from tests.support.checkout import ROOT

NOWHERE = lab([("127.0.0.1", 9)])


@pytest.mark.parametrize(
    "topic",
    [
        *("#", "weather/#", "weather/+/temperature", "+/temperature", "weather/+"),  # MQTT
        *(">", "weather.>", "*.oslo", "weather.*", "weather.*.temperature", "*"),  # NATS
        *("weather*", "news:*", "weather/*", "user:*:login", "*:login"),  # Redis
    ],
)
def test_patterns_of_other_systems_are_recognised(topic: str) -> None:
    assert looks_like_a_pattern(topic.encode())


@pytest.mark.parametrize(
    "topic",
    [
        *("weather/oslo", "c#", "#general", "channel/#general", "a#/b", "weather/#/oslo", "weather.>.oslo"),
        *("a>b", "->", "2*3", "*star", "a.**b", "+", "+47", "tel/+47", "c++", "a+b/c", "weather.+"),
    ],
)
def test_other_topics_with_these_characters_are_not(topic: str) -> None:
    assert not looks_like_a_pattern(topic.encode())


def test_the_page_that_it_points_to_is_there() -> None:
    assert "docs/wildcards.md" in explanation("x")
    assert (ROOT / "docs/wildcards.md").is_file()


@pytest.mark.world
@pytest.mark.parametrize("topic", [b"weather/#", "weather/#"])
def test_clients_of_asyncio_warn_whoever_subscribed(topic: str | bytes) -> None:
    async def subscribe() -> None:
        async with aio.Client(NOWHERE) as client:
            client.subscribe(topic)

    with pytest.warns(WildcardWarning, match=r"^'weather/#' is one topic, and no pattern") as caught:
        asyncio.run(subscribe())
    assert [each.filename for each in caught] == [__file__]


@pytest.mark.world
def test_the_warning_can_be_silenced_and_other_topics_give_none() -> None:
    with blocking.Client(NOWHERE) as client, warnings.catch_warnings():
        warnings.simplefilter("error")
        client.subscribe("weather/oslo")
        warnings.simplefilter("ignore", WildcardWarning)
        client.subscribe("weather/#")
