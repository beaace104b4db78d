"""The inbox: most urgent first, bounded, any number of readers."""

from __future__ import annotations

import asyncio

from live import in_loop, iterate

from mercury.client.reception import Inbox
from mercury.model.message import Address, Kind, Message


def message(priority: int, topic: str = "") -> Message:
    return Message(
        kind=Kind.ALERT,
        source=Address.broker(),
        destination=Address.everyone(),
        priority=priority,
        topic=topic,
    )


@in_loop
async def test_the_most_urgent_comes_first_and_equals_in_order() -> None:
    inbox = Inbox()
    for number, priority in enumerate((3, 9, 3, 5)):
        inbox.put(message(priority, str(number)))
    inbox.close()
    assert [one.topic async for one in inbox] == ["1", "3", "0", "2"]


@in_loop
async def test_when_full_the_least_urgent_and_latest_goes() -> None:
    inbox = Inbox(limit=2)
    for number, priority in enumerate((3, 3, 9, 1)):
        inbox.put(message(priority, str(number)))
    assert (len(inbox), inbox.lost) == (2, 2)
    inbox.close()
    assert [one.topic async for one in inbox] == ["2", "0"]


@in_loop
async def test_a_reader_waits_and_wakes() -> None:
    inbox = Inbox()
    reader = asyncio.create_task(inbox.get())
    await iterate()
    assert not reader.done()
    inbox.put(message(4, "x"))
    got = await reader
    assert got is not None
    assert got.topic == "x"


@in_loop
async def test_several_readers_share_and_all_end_when_it_closes() -> None:
    inbox = Inbox()

    async def read_all() -> list[str]:
        return [one.topic async for one in inbox]

    readers = [asyncio.create_task(read_all()) for _ in range(3)]
    for number in range(30):
        inbox.put(message(4, str(number)))
        await iterate()
    inbox.close()
    taken = await asyncio.gather(*readers)
    assert sorted(int(topic) for topics in taken for topic in topics) == list(range(30))


@in_loop
async def test_a_reader_that_gives_up_takes_nothing_with_it() -> None:
    inbox = Inbox()
    impatient = asyncio.create_task(inbox.get())
    await iterate()
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    inbox.put(message(4, "kept"))
    got = await inbox.get()
    assert got is not None
    assert got.topic == "kept"


@in_loop
async def test_what_came_before_closing_is_still_read() -> None:
    inbox = Inbox()
    inbox.put(message(4))
    inbox.close()
    assert await inbox.get() is not None
    assert await inbox.get() is None
    assert await inbox.get() is None
