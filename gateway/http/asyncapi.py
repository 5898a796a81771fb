"""`GET /asyncapi.json`: the WebSocket of `/v1/stream`, from the models that read and write it."""

from __future__ import annotations

from dataclasses import MISSING, fields
from importlib import metadata
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from gateway import protocol

_REF = "#/components/schemas/{model}"
Json = dict[str, Any]


def document() -> Json:
    """The AsyncAPI 3.0 document, from the client's point of view."""
    schemas: Json = {}
    for model in protocol.CLIENT_MESSAGES.values():
        key, made = models_json_schema([(model, "validation")], ref_template=_REF)
        schemas |= made["$defs"]
        schemas[model.__name__] |= {
            "required": [*schemas[model.__name__].get("required", ()), "type"]
        }
        assert key
    for sent in protocol.SERVER_MESSAGES.values():
        schemas[sent.__name__] = _server_schema(sent)
    sends = {name: model.__name__ for name, model in protocol.CLIENT_MESSAGES.items()}
    receives = {name: model.__name__ for name, model in protocol.SERVER_MESSAGES.items()}
    messages: Json = {
        name: {
            "name": name,
            "contentType": "application/json",
            "payload": {"$ref": f"#/components/schemas/{schema}"},
        }
        for name, schema in (sends | receives).items()
    }
    messages["audio"] = {
        "name": "audio",
        "contentType": "application/octet-stream",
        "summary": f"Binary: {protocol.HEADER.size} bytes of header, then one packet.",
        "payload": {"type": "string", "format": "binary"},
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Voxgate stream",
            "version": metadata.version("voxgate"),
            "description": "Text in, speech out over one WebSocket; see docs/protocol.md.",
            "license": {"name": "Apache-2.0"},
        },
        "channels": {
            "stream": {
                "address": protocol.PATH,
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
            }
        },
        "operations": {
            "send": _operation("send", sends),
            "receive": _operation("receive", [*receives, "audio"]),
        },
        "components": {"messages": messages, "schemas": schemas},
    }


def _operation(action: str, names: Any) -> Json:
    return {
        "action": action,
        "channel": {"$ref": "#/channels/stream"},
        "messages": [{"$ref": f"#/channels/stream/messages/{name}"} for name in names],
    }


def _server_schema(model: type[protocol.ServerMessage]) -> Json:
    hints = get_type_hints(model)
    properties: Json = {"type": {"const": model.type}}
    required = ["type"]
    for field in fields(model):
        properties[field.name] = TypeAdapter(hints[field.name]).json_schema()
        if field.default is MISSING:
            required.append(field.name)
    return {
        "title": model.__name__,
        "description": (model.__doc__ or "").strip(),
        "type": "object",
        "properties": properties,
        "required": required,
    }
