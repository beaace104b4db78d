"""The paths of the matcher's gateway, from the description that it serves itself."""

from __future__ import annotations

from typing import Any

from mercury.matcher.gateway.descriptions import OPENAPI

from .md import code, table

HEAD = """# Gateway (HTTP)

The matcher serves HTTP and websockets at `http://127.0.0.1:7480`. It describes itself: `/openapi.json` (OpenAPI 3.1)
has these paths with all schemas, `/asyncapi.json` (AsyncAPI 3.0) the websocket. How to use it:
[matching over the web](../how-to/web.md).
"""


def gateway() -> str:
    """The page."""
    parts = [HEAD]
    for path, operations in OPENAPI["paths"].items():
        for method, operation in operations.items():
            if method in ("get", "put", "post", "delete"):
                parts.append(_operation(f"{method.upper()} {path}", operation))
    return "".join(parts)


def _operation(title: str, operation: dict[str, Any]) -> str:
    said = operation.get("description") or operation.get("summary") or ""
    rows = [
        (code(one["name"]), one["in"], "yes" if one.get("required") else "", _about(_schema(one)))
        for one in operation.get("parameters", ())
    ]
    body = _schema(operation.get("requestBody", {}))
    rows += [
        (code(name), "body", "yes" if name in body.get("required", ()) else "", _about(schema))
        for name, schema in body.get("properties", {}).items()
    ]
    answers = [(code(status), one["description"]) for status, one in operation["responses"].items()]
    return (
        f"\n## {title}\n\n{said}.\n\n"
        + table(("field", "in", "required", ""), rows)
        + "\n"
        + table(("answer", ""), answers)
    )


def _schema(described: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter or body, wherever it stands."""
    content = described.get("content", {}).get("application/json", {})
    return _resolved(described.get("schema") or content.get("schema") or {})


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _resolved(OPENAPI["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    return schema


def _about(schema: dict[str, Any]) -> str:
    """What a value may be."""
    schema = _resolved(schema)
    kind = schema.get("type", "")
    notes = [" or ".join(kind) if isinstance(kind, list) else str(kind)]
    for sign, key in (
        (">", "exclusiveMinimum"), ("≥", "minimum"), ("<", "exclusiveMaximum"), ("≤", "maximum"),
    ):  # fmt: skip
        if key in schema:
            notes.append(f"{sign} {schema[key]:g}")
    if "default" in schema:
        notes.append(f"default {schema['default']}")
    about = ", ".join(note for note in notes if note)
    return f"{about}. {schema['description']}" if "description" in schema else about
