"""The gateway's HTTP paths, described in OpenAPI 3.1; served at /openapi.json."""

from __future__ import annotations

import json
from typing import Any

from mercury.matcher.gateway.schemas import (
    ERROR,
    EVENT,
    EVENT_EXAMPLE,
    FOUND,
    ID,
    LIMIT,
    PUBLICATION,
    QUERY,
    SQUARE,
    SUBSCRIPTION,
    Schema,
    either_scope,
)

_EXAMPLES = {
    "topic": "taxi",
    "lat": 60.17,
    "lon": 24.94,
    "radius_m": 500,
    "where": "seats >= 2",
    "limit": 10,
    "inside": True,
    "dwell_s": 30,
    "hysteresis_m": 10,
    "ttl_s": 3600,
}


def _parameters(fields: dict[str, Schema]) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    for name, schema in fields.items():
        parameter = {"name": name, "in": "query", "required": name == "topic", "schema": schema}
        if name == "area":  # instead of a radius
            del parameter["schema"]
            parameter["content"] = {"application/json": {"schema": schema}}
        else:
            parameter["example"] = _EXAMPLES[name]
        parameters.append(parameter)
    return parameters


def _content(schema: Schema, **examples: Any) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": schema}
    if examples:
        content["examples"] = {name: {"value": value} for name, value in examples.items()}
    return {"application/json": content}


def _answers(schema: Schema, description: str, status: str = "200") -> dict[str, Any]:
    return {
        status: {"description": description, "content": _content(schema)},
        "400": {
            "description": "What is wrong with it, in a sentence",
            "content": _content({"$ref": "#/components/schemas/Error"}),
        },
    }


_DONE: Schema = {"type": "object", "properties": {"ok": {"const": True}}, "required": ["ok"]}
_FOUND: Schema = {
    "type": "object",
    "required": ["found"],
    "properties": {"found": {"type": "array", "items": {"$ref": "#/components/schemas/Found"}}},
}
_PUBLICATION_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": ID,
    "example": "taxi-1",
}
_STREAMED = f"event: enter\ndata: {json.dumps(EVENT_EXAMPLE)}\n\n"

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Mercury: matching over HTTP",
        "version": "1",
        "description": "What moves, who is near it, and who wants to know. "
        "Websockets are described in /asyncapi.json.",
    },
    "paths": {
        "/v1/near": {
            "get": {
                "operationId": "askNear",
                "summary": "What is near a place now, nearest first",
                "parameters": _parameters({**QUERY, "limit": LIMIT}),
                "responses": _answers(_FOUND, "What was found"),
            },
            "post": {
                "operationId": "askNearWithBody",
                "summary": "The same, with a body; for areas",
                "requestBody": {
                    "required": True,
                    "content": _content(
                        {"$ref": "#/components/schemas/Question"},
                        circle={"topic": "taxi", "lat": 60.17, "lon": 24.94, "radius_m": 500},
                        polygon={"topic": "taxi", "area": SQUARE, "where": "seats >= 2"},
                    ),
                },
                "responses": _answers(_FOUND, "What was found"),
            },
        },
        "/v1/near/stream": {
            "get": {
                "operationId": "streamNear",
                "summary": "What comes near a place, stays and goes, as server-sent events",
                "parameters": _parameters(SUBSCRIPTION),
                "responses": {
                    "200": {
                        "description": "One event each; the data is an object of /asyncapi.json",
                        "content": {
                            "text/event-stream": {
                                "schema": {"type": "string"},
                                "examples": {"enter": {"value": _STREAMED}},
                            }
                        },
                    },
                    "400": {
                        "description": "What is wrong with it, in a sentence",
                        "content": _content({"$ref": "#/components/schemas/Error"}),
                    },
                },
            }
        },
        "/v1/publications/{id}": {
            "put": {
                "operationId": "publish",
                "summary": "Declare something that moves, change it, or say where it is",
                "parameters": [_PUBLICATION_ID],
                "requestBody": {
                    "required": True,
                    "content": _content(
                        {"$ref": "#/components/schemas/Publication"},
                        declared={"topic": "taxi", "values": {"seats": 4}, "ttl_s": 60},
                        moved={
                            "topic": "taxi",
                            "values": {"seats": 4},
                            "lat": 60.17,
                            "lon": 24.94,
                            "accuracy_m": 5,
                        },
                    ),
                },
                "responses": {
                    **_answers(_DONE, "It was known and is changed"),
                    "201": {"description": "It is new", "content": _content(_DONE)},
                },
            },
            "delete": {
                "operationId": "withdraw",
                "summary": "It is no more",
                "parameters": [_PUBLICATION_ID],
                "responses": {
                    "200": {"description": "Withdrawn", "content": _content(_DONE)},
                    "404": {
                        "description": "There is none of that id",
                        "content": _content({"$ref": "#/components/schemas/Error"}),
                    },
                },
            },
        },
        "/v1/topics": {
            "get": {
                "operationId": "listTopics",
                "summary": "Topics, and how many publications and subscriptions each has",
                "responses": {
                    "200": {
                        "description": "In the order of their names",
                        "content": _content({"$ref": "#/components/schemas/Topics"}),
                    }
                },
            }
        },
        "/healthz": {
            "get": {
                "operationId": "health",
                "summary": "Whether the matcher works, and how much it holds",
                "responses": {
                    "200": {"description": "It works", "content": _content({"type": "object"})},
                    "503": {
                        "description": "It does not; `reason` says why",
                        "content": _content({"type": "object"}),
                    },
                },
            }
        },
        "/openapi.json": {
            "get": {
                "operationId": "describeHttp",
                "summary": "This description",
                "responses": {
                    "200": {"description": "OpenAPI", "content": _content({"type": "object"})}
                },
            }
        },
        "/asyncapi.json": {
            "get": {
                "operationId": "describeWebsockets",
                "summary": "The description of the websocket",
                "responses": {
                    "200": {"description": "AsyncAPI", "content": _content({"type": "object"})}
                },
            }
        },
    },
    "components": {
        "schemas": {
            "Error": ERROR,
            "Event": EVENT,
            "Found": FOUND,
            "Publication": {
                "type": "object",
                "required": ["topic"],
                "properties": PUBLICATION,
                "additionalProperties": False,
            },
            "Question": either_scope(
                {
                    "type": "object",
                    "required": ["topic"],
                    "properties": {**QUERY, "limit": LIMIT},
                }
            ),
            "Topics": {
                "type": "object",
                "required": ["topics"],
                "properties": {
                    "topics": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["topic", "publications", "subscriptions"],
                            "properties": {
                                "topic": {"type": "string"},
                                "publications": {"type": "integer"},
                                "subscriptions": {"type": "integer"},
                            },
                        },
                    }
                },
            },
        }
    },
}
