// The Voxgate client for browsers: see README.md.

export { ChatError, chatTokens } from "./chat.js";
export { CodePointText } from "./codepoints.js";
export { chooseFormat, makeDecoder, supportsOpus } from "./decoders.js";
export { oggOpus, wav, webvtt } from "./files.js";
export { Link } from "./link.js";
export { Player } from "./player.js";
export { readPacket, SAMPLE_RATE, streamUrl } from "./protocol.js";
export { JitterRing } from "./ring.js";
export { VoiceSession } from "./session.js";
export { parseSubtitles } from "./subtitles.js";
export { Turn } from "./turn.js";
export { WordTrack } from "./words.js";
