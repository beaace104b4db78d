"""The paths of the matcher's gateway, from the description that it serves itself."""

from __future__ import annotations

from typing import Any

from mercury.matcher.gateway.openapi import OPENAPI

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
        (code(one["name"]), one["in"], "yes" if one.get("required") else "", _about(one))
        for one in operation.get("parameters", ())
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    fields = body.get("schema", {}).get("properties", {})
    required = body.get("schema", {}).get("required", ())
    rows += [
        (code(name), "body", "yes" if name in required else "", schema.get("description", ""))
        for name, schema in fields.items()
    ]
    answers = [(code(status), one["description"]) for status, one in operation["responses"].items()]
    return (
        f"\n## {title}\n\n{said}\n\n"
        + table(("field", "in", "required", ""), rows)
        + "\n"
        + table(("answer", ""), answers)
    )


def _about(parameter: dict[str, Any]) -> str:
    return str(parameter.get("schema", {}).get("description", ""))
