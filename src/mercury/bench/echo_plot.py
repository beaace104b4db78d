"""The box-and-whisker plot of Mercury's figure 5, with the paper's values and the floor."""

from __future__ import annotations

from pathlib import Path

from mercury.bench.echo import Run
from mercury.model.errors import ConfigurationError

# Mercury §7.3: about 10 ms at one message a second, about 1 s from 10 to 500, falling behind
# between 500 and 750.
PAPER_MS = {1: 10.0, 10: 1000.0, 100: 1000.0, 500: 1000.0}
PAPER_BREAKS_AT = 750


def draw(runs: list[Run], floors: list[Run], path: Path) -> None:
    """Draw round trips by rate."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError:
        raise ConfigurationError(
            "plots need matplotlib: pip install 'mercury-messaging[plot]'"
        ) from None
    places = range(1, len(runs) + 1)
    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    axes.boxplot(
        [run.round_trips_ms for run in runs],
        positions=list(places),
        widths=0.5,
        whis=(1, 99),
        showfliers=True,
        flierprops={"marker": ".", "markersize": 3, "markeredgecolor": "#9aa5b1"},
        medianprops={"color": "#c0392b", "linewidth": 2},
        patch_artist=True,
        boxprops={"facecolor": "#d6e6f5"},
    )
    axes.plot([], [], color="#c0392b", linewidth=2, label="Mercury: median; box 25–75 %, "
              "whiskers 1–99 %")  # fmt: skip
    floor = [run.row()["p50_ms"] for run in floors]
    axes.plot(places, floor, "_", color="#27ae60", markersize=26, markeredgewidth=2.5,
              label="bare asyncio UDP echo on this machine, median")  # fmt: skip
    known = [(at, PAPER_MS[int(run.rate)]) for at, run in zip(places, runs, strict=True)
             if run.rate in PAPER_MS]  # fmt: skip
    if known:
        axes.plot(*zip(*known, strict=True), "D", color="#e67e22", markersize=8,
                  label="the paper's prototype (Kafka, 2017), about")  # fmt: skip
    beyond = [at for at, run in zip(places, runs, strict=True) if run.rate >= PAPER_BREAKS_AT]
    if beyond:
        axes.axvspan(beyond[0] - 0.5, beyond[-1] + 0.5, color="#e67e22", alpha=0.08, zorder=0)
        axes.text(beyond[-1] + 0.45, 1500.0, "the paper's prototype falls behind here",
                  ha="right", va="center", color="#a04000")  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(top=4000.0)
    axes.set_xticks(list(places), [f"{run.rate:,g}" for run in runs])
    axes.set_xlabel("messages per second")
    axes.set_ylabel("round trip, ms (log scale)")
    axes.set_title("Round trip client → adapter → bus → broker → bus → adapter → client")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(0.12, 0.8), framealpha=0.95)
    figure.savefig(path, dpi=130)
    plt.close(figure)
