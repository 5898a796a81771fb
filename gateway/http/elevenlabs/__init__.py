"""ElevenLabs' text-to-speech API."""
