"""`GET /openapi.json`: every HTTP path of this server, from the models that read its bodies."""

from __future__ import annotations

from importlib import metadata

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.http import native, openai
from gateway.http.batch import PATH as BATCH
from gateway.http.batch import BatchBody
from gateway.http.elevenlabs import wishes as elevenlabs
from gateway.http.elevenlabs.routes import LINES
from gateway.http.openapi_schemas import (
    AUDIO,
    INTEGER,
    MODEL,
    NULLABLE_STRING,
    SCHEMAS,
    STRING,
    TIMED,
    Json,
    array,
    content,
    errors,
    json_,
    object_,
    ref,
)
from gateway.http.sound import ELEVENLABS, NATIVE, OPENAI

_REF = "#/components/schemas/{model}"
_BODIES: tuple[type[BaseModel], ...] = (
    openai.SpeechBody,
    elevenlabs.SpeechBody,
    native.TtsBody,
    BatchBody,
)


def _body(model: type[BaseModel]) -> Json:
    schema = ref(model.__name__) if model is not elevenlabs.SpeechBody else ref("ElevenLabsBody")
    schema = ref("OpenAiBody") if model is openai.SpeechBody else schema
    return {"required": True, "content": content(["application/json"], schema)}


def _path_parameter(name: str, schema: Json | None = None) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": schema or STRING}


def _query(name: str, schema: Json, description: str = "") -> Json:
    return {"name": name, "in": "query", "schema": schema, "description": description}


_REFUSALS = (400, 401, 403, 413, 429, 500, 503)
_TTS = "/v1/text-to-speech/{voice_id}"


def _openai_paths() -> Json:
    refused = errors("OpenAiError", (404, *_REFUSALS))
    audio = sorted({sound.media_type for sound in OPENAI.values()})
    model = {
        "parameters": [_path_parameter("model")],
        "responses": {"200": json_(MODEL)} | refused,
    }
    models = json_(
        {
            "anyOf": [
                object_({"object": {"const": "list"}, "data": array(MODEL)}),
                array(object_({"model_id": STRING, "name": STRING})),
            ]
        },
        "OpenAI's list, or ElevenLabs' for its clients.",
    )
    voices = object_({"voices": array(object_({"id": STRING, "name": STRING}))})
    return {
        "/v1/audio/speech": {
            "post": {
                "summary": "Speak, as OpenAI's API does",
                "requestBody": _body(openai.SpeechBody),
                "responses": {
                    "200": {
                        "description": "Audio as it is made, or server-sent events.",
                        "content": content([*audio, "text/event-stream"], AUDIO),
                    },
                    **refused,
                },
            }
        },
        "/v1/audio/voices": {"get": {"summary": "Voices", "responses": {"200": json_(voices)}}},
        "/v1/models": {"get": {"summary": "Models", "responses": {"200": models}}},
        "/v1/models/{model}": {"get": {"summary": "One model", **model}},
    }


def _elevenlabs_paths() -> Json:
    refused = errors("ElevenLabsError", (404, 422, *_REFUSALS))
    audio = sorted({sound.media_type for sound in ELEVENLABS.values()})
    asked: Json = {
        "parameters": [
            _path_parameter("voice_id"),
            _query(
                "output_format", {"enum": list(ELEVENLABS), "default": elevenlabs.DEFAULT_FORMAT}
            ),
            _query("enable_logging", {"type": "boolean", "default": True}),
            _query("optimize_streaming_latency", {"type": "integer", "minimum": 0, "maximum": 4}),
        ],
        "requestBody": _body(elevenlabs.SpeechBody),
    }
    spoken = {
        "post": {
            "summary": "Speak, as ElevenLabs' API does",
            **asked,
            "responses": {
                "200": {"description": "Audio as it is made.", "content": content(audio, AUDIO)},
                **refused,
            },
        }
    }
    lines = {
        "description": "A JSON object a line.",
        "content": content([LINES], AUDIO),
    }
    search = [
        _query("search", STRING, "Part of a name, description or label."),
        _query("voice_ids", array(STRING)),
        _query("page_size", {"type": "integer", "minimum": 1, "maximum": 100, "default": 10}),
        _query("next_page_token", {"type": "string", "pattern": "^[0-9]{1,9}$"}),
        _query("sort", {"enum": ["name", "created_at_unix"]}),
        _query("sort_direction", {"enum": ["asc", "desc"]}),
        _query("category", STRING),
        _query("voice_type", STRING),
        _query("fine_tuning_state", STRING),
        _query("collection_id", STRING),
        _query("include_total_count", {"type": "boolean"}),
    ]
    found = object_(
        {"voices": array(ref("Voice")), "has_more": {"type": "boolean"}, "total_count": INTEGER},
        next_page_token=NULLABLE_STRING,
    )
    return {
        _TTS: spoken,
        f"{_TTS}/stream": spoken,
        f"{_TTS}/with-timestamps": {
            "post": {
                "summary": "Speak, and tell when each character is said",
                **asked,
                "responses": {"200": json_(TIMED), **refused},
            }
        },
        f"{_TTS}/stream/with-timestamps": {
            "post": {
                "summary": "The same, as it is made",
                **asked,
                "responses": {"200": lines, **refused},
            }
        },
        "/v1/voices": {
            "get": {
                "summary": "Voices",
                "responses": {"200": json_(object_({"voices": array(ref("Voice"))}))},
            }
        },
        "/v1/voices/{voice_id}": {
            "get": {
                "summary": "One voice",
                "parameters": [_path_parameter("voice_id")],
                "responses": {"200": json_(ref("Voice")), **errors("ElevenLabsError", (404,))},
            }
        },
        "/v2/voices": {
            "get": {
                "summary": "Voices by search, in pages",
                "parameters": search,
                "responses": {"200": json_(found), **errors("ElevenLabsError", (422,))},
            }
        },
    }


def _native_paths() -> Json:
    refused = errors("Error", (404, *_REFUSALS))
    job, number = _path_parameter("job"), _path_parameter("number", {**INTEGER, "minimum": 0})
    answer = {"202": json_(ref("Job"), "Taken."), **refused}
    events = {"description": "Events.", "content": content(["text/event-stream"], AUDIO)}
    status = json_(ref("Job"))
    status["content"] |= events["content"]
    missing = errors("Error", (404,))
    return {
        "/tts": {
            "post": {
                "summary": "Speak in the format that Accept asks for",
                "requestBody": _body(native.TtsBody),
                "responses": {
                    "200": {
                        "description": "Audio as it is made.",
                        "content": content(NATIVE, AUDIO),
                    },
                    **errors("Error", (404, 406, *_REFUSALS)),
                },
            }
        },
        BATCH: {
            "post": {
                "summary": "Speak many texts, later",
                "requestBody": _body(BatchBody),
                "responses": answer,
            }
        },
        f"{BATCH}/{{job}}": {
            "get": {
                "summary": "How a job stands",
                "parameters": [job],
                "responses": {"200": status, **missing},
            },
            "delete": {
                "summary": "Stop and forget a job",
                "parameters": [job],
                "responses": {"204": {"description": "Gone."}, **missing},
            },
        },
        f"{BATCH}/{{job}}/events": {
            "get": {
                "summary": "Every change of a job",
                "parameters": [job],
                "responses": {"200": events, **missing},
            }
        },
        f"{BATCH}/{{job}}/tasks/{{number}}/audio": {
            "get": {
                "summary": "The audio of a task",
                "parameters": [job, number],
                "responses": {
                    "200": {"description": "A file.", "content": content(NATIVE, AUDIO)},
                    **errors("Error", (404, 409)),
                },
            }
        },
    }


def _server_paths() -> Json:
    ready = {"type": "object", "properties": {"ready": {"type": "boolean"}}, "required": ["ready"]}
    alive = object_(
        {
            "status": STRING,
            "engine": STRING,
            "sessions": INTEGER,
            "draining": {"type": "boolean"},
        }
    )
    vtt = {"description": "WebVTT.", "content": content(["text/vtt"], STRING)}
    text = {"description": "Prometheus text.", "content": content(["text/plain"], STRING)}
    any_json = json_({"type": "object"})
    wanted = [
        _path_parameter("session"),
        _query("turn", {"type": "string", "pattern": "^[0-9]{1,9}$"}),
        _query("text", {"enum": ["written", "spoken"]}),
    ]
    return {
        "/health": {"get": {"summary": "Whether it lives", "responses": {"200": json_(alive)}}},
        "/health/ready": {
            "get": {
                "summary": "Whether it speaks",
                "responses": {"200": json_(ready), "503": json_(ready, "Not now.")},
            }
        },
        "/openapi.json": {"get": {"summary": "This document", "responses": {"200": any_json}}},
        "/asyncapi.json": {"get": {"summary": "The WebSocket", "responses": {"200": any_json}}},
        "/v1/tokens": {
            "post": {
                "summary": "A short-lived token for a browser",
                "parameters": [
                    _query("seconds", {"type": "integer", "minimum": 1, "maximum": 10**9})
                ],
                "responses": {
                    "200": json_(object_({"token": STRING, "expires_in": INTEGER})),
                    **errors("Error", (400, 401, 403, 404, 429)),
                },
            }
        },
        "/metrics": {"get": {"summary": "Metrics", "responses": {"200": text}}},
        "/v1/sessions/{session}/captions.vtt": {
            "get": {
                "summary": "What a session said",
                "parameters": wanted,
                "responses": {"200": vtt, **errors("Error", (400, 404))},
            }
        },
    }


_RENAMED = {openai.SpeechBody: "OpenAiBody", elevenlabs.SpeechBody: "ElevenLabsBody"}


def document() -> Json:
    """The OpenAPI 3.1 document."""
    schemas = dict(SCHEMAS)
    for model in _BODIES:
        _, made = models_json_schema([(model, "validation")], ref_template=_REF)
        for name, schema in made["$defs"].items():
            renamed = _RENAMED.get(model, name) if name == model.__name__ else name
            schemas[renamed] = schema
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Voxgate",
            "version": metadata.version("voxgate"),
            "description": "Speech over HTTP. The WebSockets are in /asyncapi.json.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            **_native_paths(),
            **_openai_paths(),
            **_elevenlabs_paths(),
            **_server_paths(),
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "elevenlabs": {"type": "apiKey", "in": "header", "name": "xi-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"elevenlabs": []}],
    }
