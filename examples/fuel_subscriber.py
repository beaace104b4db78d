"""Subscribe to cheap fuel of one brand, near me.

python examples/fuel_subscriber.py --brand X --below 1.6
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib

import mercury


def position(text: str) -> tuple[float, float]:
    lat, lon = text.split(",")
    return float(lat), float(lon)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adapter", default="udp://127.0.0.1:7400", help="where to connect")
    parser.add_argument("--identity", default="fuel-subscriber", help="our name")
    parser.add_argument("--position", type=position, default=(40.7608, -111.8910), help="LAT,LON")
    parser.add_argument("--brand", default="X", help="the only brand we want")
    parser.add_argument("--below", type=float, default=1.6, help="the price to stay under")
    parser.add_argument("--near", type=float, default=5000.0, help="metres from where we are")
    parser.add_argument("--count", type=int, help="end after so many offers")
    parser.add_argument("--for", dest="seconds", type=float, help="end after so many seconds")
    options = parser.parse_args()

    async with mercury.connect(
        options.adapter, identity=options.identity, position=options.position
    ) as client:
        # The filter runs at the broker and the distance at the adapter: what we do not want is
        # never sent to us. When we move, `near_m` moves with us.
        where = f'fuel_price < {options.below} and brand == "{options.brand}"'
        offers = await client.subscribe("fuel", where=where, near_m=options.near)
        print(f"subscribed: {where}, within {options.near:.0f} m", flush=True)
        seen = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.seconds):
                async for message in offers:
                    print("{station}: {fuel_price:.2f}".format(**message.values), flush=True)
                    seen += 1
                    if seen == options.count:
                        break


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
    except mercury.MercuryError as error:
        raise SystemExit(f"fuel_subscriber: {error}") from None
