"""Show alerts for where we are, as they arrive.

python examples/alert_display.py --position 40.7608,-111.8910
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time

import mercury


def position(text: str) -> tuple[float, float]:
    lat, lon = text.split(",")
    return float(lat), float(lon)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adapter", default="udp://127.0.0.1:7400", help="where to connect")
    parser.add_argument("--identity", default="alert-display", help="our name, unique on the road")
    parser.add_argument("--position", type=position, default=(40.7608, -111.8910), help="LAT,LON")
    parser.add_argument("--count", type=int, help="end after so many alerts")
    parser.add_argument("--for", dest="seconds", type=float, help="end after so many seconds")
    options = parser.parse_args()

    # The client opens a session, reports our position every second, and comes back by itself
    # when the connection is lost.
    async with mercury.connect(
        options.adapter, identity=options.identity, position=options.position
    ) as client:
        print(f"{client.identity} is connected and waits for alerts", flush=True)
        shown = 0
        # Without --for the time is None, which means: no limit.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.seconds):
                # What arrives here is meant for us: the area, our heading and the time fit.
                async for message in client:
                    if message.event is None:
                        continue
                    clock = time.strftime("%H:%M:%S")
                    print(f"{clock} {message.event.kind}: {message.event.text}", flush=True)
                    shown += 1
                    if shown == options.count:
                        break


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
    except mercury.MercuryError as error:
        raise SystemExit(f"alert_display: {error}") from None
