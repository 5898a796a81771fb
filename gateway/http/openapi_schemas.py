"""The pieces of the OpenAPI document: schemas of what this server sends, and how to write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

STRING = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}
AUDIO: dict[str, Any] = {}
"""The schema of bytes."""
Json = dict[str, Any]


def object_(required: Mapping[str, Json], **optional: Json) -> Json:
    """An object that may have more than this."""
    properties = {**required, **optional}
    return {"type": "object", "properties": properties, "required": list(required)}


def array(items: Json) -> Json:
    return {"type": "array", "items": items}


def nullable(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


NULLABLE_STRING = nullable(STRING)
TASK = object_(
    {
        "task": INTEGER,
        "id": NULLABLE_STRING,
        "status": {"enum": ["queued", "running", "done", "failed"]},
        "error": nullable({"$ref": "#/components/schemas/Error"}),
        "audio": nullable(object_({"url": STRING, "bytes": INTEGER, "ms": INTEGER})),
    }
)
VOICE = object_(
    {"voice_id": STRING, "name": STRING, "category": STRING},
    labels={"type": "object", "additionalProperties": STRING},
    description=NULLABLE_STRING,
)
TIMES = object_(
    {
        "characters": array(STRING),
        "character_start_times_seconds": array(NUMBER),
        "character_end_times_seconds": array(NUMBER),
    }
)
TIMED = object_(
    {
        "audio_base64": STRING,
        "alignment": nullable(TIMES),
        "normalized_alignment": nullable(TIMES),
    }
)
MODEL = object_(
    {
        "id": STRING,
        "object": {"const": "model"},
        "created": INTEGER,
        "owned_by": STRING,
    }
)
SCHEMAS: dict[str, Json] = {
    "Error": object_(
        {"code": STRING, "message": STRING},
        hint=STRING,
        field=STRING,
        available=array(STRING),
        retry_after_ms=INTEGER,
    ),
    "OpenAiError": object_(
        {
            "error": object_(
                {
                    "message": STRING,
                    "type": STRING,
                    "param": NULLABLE_STRING,
                    "code": NULLABLE_STRING,
                }
            )
        }
    ),
    "ElevenLabsError": object_(
        {
            "detail": {
                "anyOf": [
                    object_(
                        {"status": STRING, "message": STRING, "code": STRING, "type": STRING},
                        request_id=STRING,
                        param=NULLABLE_STRING,
                    ),
                    array(object_({"loc": array(STRING), "msg": STRING, "type": STRING})),
                ]
            }
        }
    ),
    "Job": object_(
        {
            "job_id": STRING,
            "status": {"enum": ["queued", "running", "done", "partial", "failed"]},
            "created_at": NUMBER,
            "finished_at": nullable(NUMBER),
            "expires_at": nullable(NUMBER),
            "progress": object_(
                {"total": INTEGER, "done": INTEGER, "failed": INTEGER, "share": NUMBER}
            ),
            "tasks": array(TASK),
        }
    ),
    "Voice": VOICE,
}


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def content(types: Iterable[str], schema: Json) -> Json:
    return {each: {"schema": schema} for each in types}


def json_(schema: Json, description: str = "Done.") -> Json:
    return {"description": description, "content": content(["application/json"], schema)}


def errors(schema: str, statuses: Sequence[int]) -> Json:
    """What a refused request gets, in the shape its API has."""
    return {str(status): json_(ref(schema), "Refused.") for status in statuses}
