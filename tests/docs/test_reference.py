"""What is written by hand in the reference holds."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

import yaml
from docs.walkthrough import ROOT
from live import connect, in_loop, live

from mercury.model.delivery import DeliveryState
from mercury.model.filter import compile_filter
from mercury.service import Statistics
from mercury.service.statistics import LOSSES

METRICS = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
LISTED = set(re.findall(r"`(mercury_\w+)`", METRICS))
# Where the numbers of each part come from.
SOURCES = {
    "adapter": ("adapter", "session", "mediator"),
    "broker": ("broker",),
    "matcher": ("matcher", "matching"),
    "pipeline": ("pipeline",),
}

_COUNTED = re.compile("dropped|rejected")


def _served(part: str, statistics: Statistics) -> set[str]:
    names = {
        metric.name + "_total" * (metric.type == "counter") for metric in statistics.metrics(part)
    }
    return names - {f"mercury_{part}_dropped_total"}


@in_loop
async def test_every_metric_that_is_served_is_explained() -> None:
    async with live() as world:
        adapter, broker, matcher = (
            await world.adapter(),
            await world.broker(),
            await world.matcher(),
        )
        async with connect(adapter, "car-1") as client:
            await client.echo()
        for part, service in (("adapter", adapter), ("broker", broker), ("matcher", matcher)):
            served = _served(part, service.statistics())
            assert len(served) > 2
            assert served <= LISTED, served - LISTED


@in_loop
async def test_every_table_has_a_gauge_and_one_of_its_limit() -> None:
    async with live() as world:
        services = {"adapter": await world.adapter(), "broker": await world.broker()}
        for part, service in services.items():
            gauges = service.statistics().gauges
            names = {name for name in gauges if f"{name}_limit" in gauges}
            said = set(re.findall(rf"`mercury_{part}_(\w+)_limit`", METRICS))
            assert names == said
            assert len(names) == (16 if part == "adapter" else 3)
            assert all(0 <= gauges[name] <= gauges[f"{name}_limit"] > 0 for name in names)


def test_every_metric_that_is_explained_is_counted_somewhere() -> None:
    # Names that are put together from two.
    composed = {
        "deliveries": {state.label for state in DeliveryState},
        "sessions": {"closed", "silent"},
        "events": {"lag", "position", "rows"},
        "congestion": {"lag", "position", "rows"},
    }
    for name in LISTED - {"mercury_healthy"}:  # which every part serves
        _, part, metric = name.removesuffix("_total").removesuffix("_limit").split("_", 2)
        if part not in SOURCES:
            continue
        source = "".join(
            path.read_text("utf-8")
            for package in SOURCES[part]
            for path in (ROOT / "src" / "mercury" / package).rglob("*.py")
        )
        first, _, rest = metric.partition("_")
        is_there = f'"{metric}"' in source or rest in composed.get(first, ())
        assert is_there or (first == "gateway" and f'"{rest}"' in source), name


def _strings(node: ast.expr) -> Iterator[str]:
    """What an expression may be as text; `…` where it is put together."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (*_strings(node.body), *_strings(node.orelse))
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values
        )


def _reasons() -> set[str]:
    """The reasons for which the code counts something as dropped."""
    found: set[str] = set()
    for path in (ROOT / "src" / "mercury").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Subscript(value=of, slice=key) if ast.unparse(of).endswith("dropped"):
                    found.update(_strings(key))
                case ast.Call(func=called, args=arguments):
                    name = ast.unparse(called).rpartition(".")[2]
                    if name in ("PacketError", "_drop", "_refused", "_init_refused"):
                        found.update(*map(_strings, arguments))
                case ast.DictComp(key=ast.JoinedStr() as key) if _COUNTED.search(ast.unparse(node)):
                    found.update(_strings(key))
                case ast.Assign(targets=[ast.Name("_DROPPED")], value=ast.Dict(keys=keys)):
                    found.update(*(_strings(key) for key in keys if key is not None))
    return {reason for reason in found if " " not in reason and not reason.startswith("dropped")}


def test_every_reason_is_explained_and_every_one_explained_is_there() -> None:
    reasons = _reasons()
    assert len(reasons) > 60
    plain = {reason for reason in reasons if "…" not in reason}
    page = METRICS[METRICS.index("## Reasons") :]
    named = set(re.findall(r"`([a-z.-]+)`", page))
    assert plain - named - {name.partition(".")[2] for name in named} == set()  # with a prefix
    # What the tables begin with is there.
    first = "".join(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))
    listed = set(re.findall(r"`([a-z.-]+)`", first))
    prefixes = {name for name in listed if name.endswith(("-", "."))}
    assert listed - prefixes - plain == set()
    assert prefixes | {"refused-"} == {reason[:-1] for reason in reasons - plain}


def test_alert_rules_are_about_metrics_that_exist() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text("utf-8"))
    page = (ROOT / "docs" / "how-to" / "monitor.md").read_text("utf-8")
    names = []
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert rule["annotations"]["summary"]
            used = set(re.findall(r"mercury_\w+", rule["expr"]))
            known = LISTED | {f"mercury_{part}_dropped_total" for part in SOURCES}
            reasons = re.findall(r'reason=~"(.*?)"', rule["expr"])
            assert reasons or "dropped" not in rule["expr"]  # most are no loss
            assert all(set(LOSSES) <= set(one.split("|")) for one in reasons)
            assert used <= known, used - known
            assert rule["expr"].count("(") == rule["expr"].count(")")
            names.append(rule["alert"])
    assert names == re.findall(r"^\| `(Mercury\w+)`", page, re.MULTILINE)


def test_filters_do_what_the_page_says() -> None:
    page = (ROOT / "docs" / "reference" / "filter.md").read_text("utf-8")
    rows = re.findall(r"^\| `(.*)` \| `(\{.*\})` \| (true|false) \|$", page, re.MULTILINE)
    assert len(rows) > 8
    for text, values, result in rows:
        assert compile_filter(text).matches(json.loads(values)) is (result == "true"), text
    [shown] = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    for line in shown.splitlines():
        compile_filter(line)
