// Types of the Voxgate client. Samples count at 24 kHz, text offsets in code points unless said.

export const SAMPLE_RATE: 24000;
export type Format = "opus" | "pcm_s16le" | "mulaw" | "alaw";
export type Language = "auto" | "en" | "zh";

export interface Packet {
  format: string;
  first: boolean;
  /** Nothing but silence put in between pieces. */
  filler: boolean;
  turn: number;
  sequence: number;
  samples: number;
  position: number;
  payload: Uint8Array;
}
/** @throws TypeError on anything but an audio message of protocol version 1 */
export function readPacket(buffer: ArrayBuffer): Packet;
export function streamUrl(base: string | URL): string;

export interface Caption {
  turn: number;
  piece: number;
  text: string;
  spoken: string;
  start: number;
  end: number;
  start_sample: number;
  end_sample?: number;
  final: boolean;
  estimated?: boolean;
  words?: {
    text: string;
    spoken?: string;
    start: number;
    end: number;
    start_sample: number;
    end_sample: number;
  }[];
}

export interface Word {
  piece: number;
  start: number;
  end: number;
  startSample: number;
  endSample: number;
  /** False while the server has not told the time and it is a guess. */
  exact: boolean;
}

export class WordTrack {
  readonly words: Word[];
  take(caption: Caption): void;
  /** Index of the word that sounds at a sample, or of the one before; -1 before the first. */
  at(sample: number): number;
}

export class CodePointText {
  readonly text: string;
  readonly points: number;
  append(more: string): void;
  /** UTF-16 offset of a code point offset. */
  unit(point: number): number;
  slice(start: number, end: number): string;
}

export interface GatewayError {
  code: string;
  message: string;
  hint: string;
  fatal?: boolean;
  request?: string;
  field?: string;
  retry_after_ms?: number;
  turn?: Turn;
}

export type TurnState =
  | "waiting" | "speaking" | "done" | "heard" | "cancelled" | "failed" | "lost";

export class Turn {
  readonly id: number | null;
  readonly state: TurnState;
  readonly voice: string;
  readonly format: Format;
  readonly text: string;
  readonly written: CodePointText;
  readonly words: WordTrack;
  readonly captions: ReadonlyMap<number, Caption>;
  readonly cues: Caption[];
  readonly errors: GatewayError[];
  readonly packets: number;
  readonly bytes: number;
  /** Samples received, pre-skip included. */
  readonly received: number;
  /** Exact length, once all audio was sent. */
  readonly samples: number | null;
  /** From its first text to its first packet, and to its first sound at the output; ms. */
  readonly firstPacketMs: number | null;
  readonly firstAudibleMs: number | null;
  /** Once it is over: what of the text was heard, to a whole word, and the rest. */
  readonly spoken: string | null;
  readonly unspoken: string | null;
  readonly heardSamples: number | null;
  readonly ended: boolean;
  readonly over: boolean;
  append(text: string): void;
  flush(): void;
  end(): void;
  splitAt(sample: number): { spoken: string; unspoken: string };
}

export interface Report {
  turn?: number;
  sample?: number;
  /** Of the audio context, s. */
  time: number;
  playing: boolean;
  /** Between 0.995 and 1: slowed to take up drift and small gaps. */
  speed: number;
  /** Seconds in hand. */
  lead: number;
  /** Seconds that playing waits for before it starts. */
  target: number;
  underruns: number;
  /** Seconds spent dry. */
  dry: number;
}

export type PlayerState = "locked" | "running" | "interrupted";

export interface PlayerEvents {
  report: Report;
  /** A turn was played to its end; the number that it was pushed under. */
  heard: { turn: number };
  /** `performance.now()` of a turn's first sound at the output. */
  audible: { turn: number; at: number };
  state: { state: PlayerState };
}

export class Player extends EventTarget {
  readonly state: PlayerState;
  readonly context: AudioContext | null;
  readonly analyser: AnalyserNode | null;
  /** Seconds from the render clock to the ear. */
  readonly latency: number;
  /** Make the audio beforehand, silent until `unlock`. */
  prepare(): Promise<void>;
  /** Call it from a click or a key press. True when sound can be heard. */
  unlock(): Promise<boolean>;
  push(turn: number, start: number, samples: Float32Array): void;
  complete(turn: number, length?: number): void;
  clear(): void;
  position(): { turn: number; sample: number } | null;
  recover(): Promise<void>;
  close(): Promise<void>;
  addEventListener<K extends keyof PlayerEvents>(
    type: K,
    listener: (event: CustomEvent<PlayerEvents[K]>) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;
}

export class JitterRing {
  constructor(rate: number);
  readonly lead: number;
  readonly target: number;
  readonly underruns: number;
  readonly playing: boolean;
  readonly position: { turn: number; sample: number } | null;
  push(turn: number, start: number, samples: Float32Array): void;
  complete(turn: number, length?: number): void;
  clear(): void;
  read(out: Float32Array): void;
}

export interface SessionOptions {
  /** Of the gateway; that which serves these modules when left out. */
  url?: string;
  /** Asked before every session, where the server wants a token. */
  accessToken?: () => string | Promise<string>;
  /** `auto`: Opus where this browser decodes it, else PCM. */
  format?: Format | "auto";
  voice?: string;
  language?: Language;
  speed?: number;
  seed?: number;
  bitrate?: number;
  frame_ms?: 10 | 20 | 40 | 60;
  live?: boolean;
}

export type LinkState = "connecting" | "open" | "resuming" | "closed";

export interface SessionEvents {
  state: { state: LinkState; started: Started | null; reason?: string };
  turn: { turn: Turn };
  packet: { turn: Turn; packet: Packet };
  samples: { turn: Turn; start: number; samples: Float32Array };
  error: GatewayError;
  flow: { paused: boolean };
  lost: { turn: Turn; reason: string };
  wire: { direction: "up" | "down"; message: Packet | Record<string, unknown>; bytes: number };
}

export interface Started {
  session: string;
  voice: string;
  voices: string[];
  audio: { format: string; sample_rate: number; pre_skip: number; bitrate?: number };
  limits: Record<string, number>;
}

export class VoiceSession extends EventTarget {
  constructor(player: Player, options?: SessionOptions);
  readonly state: LinkState;
  readonly started: Started | null;
  readonly format: Format | null;
  /** The turn that takes text. */
  readonly current: Turn | null;
  /** Turns not over yet, in order. */
  readonly turns: readonly Turn[];
  /** Whether the server asked for no more text. */
  readonly paused: boolean;
  readonly link: Link;
  open(): Promise<void>;
  update(fields: {
    voice?: string;
    language?: Language;
    speed?: number;
    seed?: number;
    scope?: "turn" | "piece";
  }): void;
  begin(options?: { interrupt?: boolean }): Turn;
  speak(text: string, options?: { interrupt?: boolean }): Turn;
  cancel(): void;
  position(): { turn: Turn; sample: number } | null;
  close(): void;
  addEventListener<K extends keyof SessionEvents>(
    type: K,
    listener: (event: CustomEvent<SessionEvents[K]>) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;
}

export class Link {
  readonly state: LinkState;
  /** How often the session went on over another connection. */
  readonly resumes: number;
  send(message: { type: string; [field: string]: unknown }): void;
}

export function supportsOpus(): Promise<boolean>;
export function chooseFormat(): Promise<"opus" | "pcm_s16le">;
export interface Decoder {
  push(packet: Packet): void;
  /** Resolves when the last samples were given. */
  finish(): Promise<void>;
  close(): void;
}
/** One turn's packets to samples at 24 kHz, without pre-skip. @throws RangeError */
export function makeDecoder(
  format: string,
  audio: { pre_skip: number },
  onSamples: (samples: Float32Array) => void,
  onError?: (problem: Error) => void,
): Decoder;

export function oggOpus(
  packets: { samples: number; payload: Uint8Array }[],
  audio: { preSkip: number; length?: number },
): Blob;
export function wav(parts: Float32Array[], rate?: number): Blob;
export function webvtt(turn: Turn): Blob;

export interface Cue {
  /** Seconds. */
  start: number;
  end: number;
  text: string;
}
/** @throws SyntaxError when the file has no cue */
export function parseSubtitles(source: string): Cue[];

export class ChatError extends Error {
  readonly code: "unreachable" | "refused" | "not_found" | "failed" | "unexpected" | "broken_off";
  readonly detail: string;
}
export function chatTokens(
  endpoint: { url: string; key?: string; model: string },
  messages: { role: string; content: string }[],
  signal?: AbortSignal,
): AsyncGenerator<string>;
