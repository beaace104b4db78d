"""Send messages to a broker and back, and print how long each took.

python examples/echo.py --count 10
"""

from __future__ import annotations

import argparse
import asyncio
import statistics

import mercury


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adapter", default="udp://127.0.0.1:7400", help="where to connect")
    parser.add_argument("--identity", default="echo", help="our name")
    parser.add_argument("--count", type=int, default=10, help="how many echoes")
    parser.add_argument("--every", type=float, default=0.1, help="seconds between them")
    options = parser.parse_args()

    async with mercury.connect(
        options.adapter, identity=options.identity, position=(40.7608, -111.8910)
    ) as client:
        times_ms = []
        for number in range(1, options.count + 1):
            # Client, adapter, bus, broker, bus, adapter, client.
            times_ms.append(await client.echo() * 1000)
            print(f"{number}: {times_ms[-1]:.2f} ms", flush=True)
            if number < options.count:
                await asyncio.sleep(options.every)
        print(f"median {statistics.median(times_ms):.2f} ms of {len(times_ms)}")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
    except mercury.MercuryError as error:
        raise SystemExit(f"echo: {error}") from None
