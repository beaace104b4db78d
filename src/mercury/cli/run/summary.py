"""The summary of a run, in sentences: the parts, the vehicles and the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mercury.cli.messages.why import answer_from_bus
from mercury.config import Settings
from mercury.mediator.explain import refusal_reasons

_ENDS = {
    "expired": "expired",
    "refused": "refused",
    "unreachable": "unreachable",
    "waiting": "still waiting",
}
_EXPLAINED = 3  # vehicles that get a sentence of their own, at most


async def why_missed(settings: Settings, alert: str | None, vehicles: Sequence[str]) -> list[str]:
    """Why vehicles were not notified, from the records on the bus."""
    if alert is None:
        return []
    found = [await answer_from_bus(settings, alert, vehicle) for vehicle in vehicles[:_EXPLAINED]]
    return [answer.said for answer in found if answer is not None]


def ledger_sentence(ledger: dict[str, Any]) -> str:
    count = ledger["messages"]
    messages = "1 message" if count == 1 else f"{count:,} messages"
    if not count:
        return "Ledger: no message was addressed to clients."
    if not (recipients := ledger["recipients"]):
        return f"Ledger: {messages}, addressed to nobody who was there."
    took = ""
    if ledger["p50_s"] is not None and ledger["p99_s"] is not None:
        took = f" (half within {ledger['p50_s']:.3f} s, 99 % within {ledger['p99_s']:.3f} s)"
    why = {"refused": refusal_reasons(ledger["refusals"])}
    others = ", ".join(
        f"{ledger[state]:,} {word}{why.get(state, '')}"
        for state, word in _ENDS.items()
        if ledger[state] or state == "unreachable"
    )
    return (
        f"Ledger: {messages} to {recipients:,} recipient{'s' if recipients != 1 else ''}: "
        f"{ledger['acknowledged']:,} acknowledged{took}, {others}."
    )


def sentences(result: dict[str, Any]) -> list[str]:
    if "problem" in result:
        return [f"Mercury ran for {result['seconds']:g} s."]
    parts = result["parts"]
    adapters = {name: values for name, values in parts.items() if name.startswith("adapter")}
    brokers = {name: values for name, values in parts.items() if name.startswith("broker")}
    services = {name: values for name, values in parts.items() if name.startswith("service")}
    matchers = {name: values for name, values in services.items() if "pairs" in values}
    pipelines = {name: values for name, values in services.items() if name not in matchers}
    lines = [
        f"Mercury ran for {result['seconds']:g} s.",
        f"  {_total(adapters, 'sessions_opened'):,} clients connected; "
        f"{_total(adapters, 'reports'):,} reports and {_total(adapters, 'messages'):,} messages "
        f"came in, {_total(adapters, 'packets_sent'):,} packets went out.",
        f"  Alerts raised: {_total(brokers, 'alerts'):,} by brokers, "
        f"{_total(pipelines, 'alerts'):,} by the pipeline; requests answered: "
        f"{_total(brokers, 'echoes') + _total(brokers, 'requests'):,}.",
    ]
    if _total(matchers, "declarations") or _total(matchers, "updates"):
        lines.append(
            f"  Matching: {_total(matchers, 'updates'):,} positions of what moves, "
            f"{_total(matchers, 'events'):,} times somebody came, stayed or went."
        )
    simulation = result["simulation"]
    if simulation is not None:
        for incident in simulation["incidents"]:
            lines.append(f"  {incident['summary']}")
            lines += [f"    {sentence}" for sentence in incident["why_missed"]]
        if simulation["link"] is not None:
            lines.append(f"  {simulation['link']['summary']}")
    lines.append(f"  {ledger_sentence(result['ledger'])}")
    dropped: dict[str, float] = {}
    for values in parts.values():
        for key, value in values.items():
            if key.startswith("dropped.") and value:
                reason = key.removeprefix("dropped.")
                dropped[reason] = dropped.get(reason, 0) + value
    text = ", ".join(f"{reason} {count:g}" for reason, count in sorted(dropped.items()))
    lines.append(f"  Dropped: {text or 'nothing'}.")
    for name, count in result["restarts"].items():
        times = "once" if count == 1 else f"{count} times"
        lines.append(
            f"  {name} ended too early and was started again {times}; its numbers count from then."
        )
    return lines


def _total(group: dict[str, dict[str, float]], key: str) -> int:
    return int(sum(values.get(key, 0) for values in group.values()))
