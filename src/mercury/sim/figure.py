"""The functional evaluation as a picture, like Mercury's figures 3 and 4, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mercury.geo.arrays import FloatArray
from mercury.model.errors import ConfigurationError
from mercury.sim.incident import Traffic
from mercury.sim.paper import DELAY_S, EVENT, SIZE, UNIT_M, ExperimentResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_EVENT_COLOR = "#d1495b"
_AREA_COLOR = "#2e6f95"
_BYSTANDER_COLOR = "#9aa0a6"
_LABEL_COLOR = "#333333"


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """An empty picture; its size is in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigurationError(
            "figures need matplotlib: pip install 'mercury-messaging[plot]'"
        ) from None
    return Figure(figsize=(width, height), **options)


def save(figure: Figure, path: Path) -> None:
    """Write a picture; the suffix of the path says in which format."""
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:  # or a suffix that matplotlib does not know
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"cannot write {path}: {reason}") from None


def draw(result: ExperimentResult, path: Path) -> None:
    """Write the picture of a result."""
    figure = new_figure(12.0, 7.0)
    figure.subplots_adjust(left=0.05, right=0.985, top=0.885, bottom=0.165, wspace=0.12)
    left, right = figure.subplots(1, 2)
    _draw_event(left, result)
    _draw_area(right, result)
    incident = result.incident
    notified, inside = len(incident.notified_inside), len(incident.inside)
    outside = len(incident.notified_outside) or "nobody"
    figure.suptitle(
        f"Area of interest: {notified} of {inside} inside were told, and {outside} outside",
        fontsize=14,
    )
    save(figure, path)


def _draw_event(axes: Axes, result: ExperimentResult) -> None:
    incident = result.incident
    _frame(axes, "The event, and who senses it")
    _circle(axes, EVENT, _EVENT_COLOR, "event")
    sensed = set(incident.sensed)
    groups = [
        ("senses the event", _EVENT_COLOR, "o", sensed),
        ("does not", _BYSTANDER_COLOR, "o", set(range(len(incident.identities))) - sensed),
    ]
    _vehicles(axes, incident.at_event, groups)


def _draw_area(axes: Axes, result: ExperimentResult) -> None:
    incident = result.incident
    assert incident.at_alert is not None
    _frame(axes, f"The broker's area when the alert arrives, {DELAY_S:g} s later")
    _circle(axes, EVENT, _EVENT_COLOR, "event", faint=True)
    _circle(axes, result.area, _AREA_COLOR, "area of interest")
    _trails(axes, incident.at_event, incident.at_alert)
    notified, sensed = set(incident.notified_ms), set(incident.sensed)
    rest = set(range(len(incident.identities))) - notified
    groups = [
        ("told, had sensed it", _AREA_COLOR, "o", notified & sensed),
        ("told, had not", _AREA_COLOR, "s", notified - sensed),
        ("not told, had sensed it", _EVENT_COLOR, "o", rest & sensed),
        ("not told", _BYSTANDER_COLOR, "o", rest - sensed),
    ]
    _vehicles(axes, incident.at_alert, groups)


def _frame(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=11)
    ticks = np.arange(0.0, SIZE + 0.5)
    axes.set(xticks=ticks, yticks=ticks, xlim=(0.0, SIZE), ylim=(0.0, SIZE), aspect="equal")
    axes.set(xlabel=f"east, units of {UNIT_M:g} m", ylabel=f"north, units of {UNIT_M:g} m")
    axes.grid(color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)


def _circle(
    axes: Axes, circle: tuple[float, float, float], color: str, label: str, *, faint: bool = False
) -> None:
    from matplotlib.patches import Circle

    x, y, radius = circle
    axes.add_patch(
        Circle(
            (x, y),
            radius,
            facecolor="none" if faint else color + "1f",
            edgecolor=color,
            linestyle="--" if faint else "-",
            linewidth=1.0 if faint else 1.6,
            label=f"{label}, radius {radius:.3g}",
        )
    )
    axes.plot([x], [y], marker="+", markersize=9, color=color, linestyle="none")


def _trails(axes: Axes, before: Traffic, after: Traffic) -> None:
    lines = axes.plot(
        np.stack([before.x_m, after.x_m]) / UNIT_M,
        np.stack([before.y_m, after.y_m]) / UNIT_M,
        color="#b4b9be",
        linewidth=1.1,
        linestyle=":",
    )
    lines[0].set_label("from where it was")


def _vehicles(axes: Axes, traffic: Traffic, groups: list[tuple[str, str, str, set[int]]]) -> None:
    x, y = traffic.x_m / UNIT_M, traffic.y_m / UNIT_M
    heading = np.radians(traffic.heading_deg)
    east, north = np.sin(heading), np.cos(heading)
    for label, color, marker, members in groups:
        at = sorted(members)
        if not at:
            continue
        axes.quiver(
            x[at], y[at], east[at], north[at],
            color=color, angles="xy", scale_units="xy", scale=1.6, width=0.006, zorder=3,
        )  # fmt: skip
        axes.scatter(
            x[at], y[at], s=46, color=color, marker=marker, edgecolors="white", zorder=4,
            label=f"{label} ({len(at)})",
        )  # fmt: skip
    for number, (label_x, label_y) in enumerate(_label_places(x, y, heading)):
        axes.text(
            label_x, label_y, str(number + 1),
            fontsize=8, color=_LABEL_COLOR, ha="center", va="center", zorder=5,
        )  # fmt: skip
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.09), ncols=3, fontsize=8, frameon=False,
        columnspacing=1.2, handletextpad=0.5,
    )  # fmt: skip


def _label_places(x: FloatArray, y: FloatArray, heading: FloatArray) -> list[tuple[float, float]]:
    """A place for each vehicle's number: beside it, farthest from all that is already there."""
    taken_x = np.concatenate([x, x + 0.3 * np.sin(heading), x + 0.55 * np.sin(heading)])
    taken_y = np.concatenate([y, y + 0.3 * np.cos(heading), y + 0.55 * np.cos(heading)])
    places = []
    for number in range(len(x)):
        # Beside and a little behind: its arrow is ahead, and the way it came straight behind.
        turns = heading[number] + np.radians([120.0, 240.0, 90.0, 270.0, 150.0, 210.0])
        at_x, at_y = x[number] + 0.34 * np.sin(turns), y[number] + 0.34 * np.cos(turns)
        free = np.hypot(at_x[:, None] - taken_x, at_y[:, None] - taken_y).min(axis=1)
        best = int(np.argmax(free > 0.3) if (free > 0.3).any() else np.argmax(free))
        places.append((float(at_x[best]), float(at_y[best])))
        taken_x, taken_y = np.append(taken_x, at_x[best]), np.append(taken_y, at_y[best])
    return places
