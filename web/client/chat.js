// Tokens of an OpenAI-compatible chat endpoint (POST …/chat/completions with `stream`).

/** `detail` is what the endpoint said, if anything. */
export class ChatError extends Error {
  constructor(code, message, detail = "") {
    super(message);
    this.name = "ChatError";
    this.code = code; // `unreachable`, `refused`, `not_found`, `failed`, `unexpected`, `broken_off`
    this.detail = detail;
  }
}

const CODES = { 401: "refused", 403: "refused", 404: "not_found" };

/**
 * Yields the text of the answer as it comes.
 * @param {{url: string, key?: string, model: string}} endpoint `url`: up to and without
 *   `/chat/completions`, or with it
 * @param {{role: string, content: string}[]} messages
 * @param {AbortSignal} [signal]
 */
export async function* chatTokens({ url, key, model }, messages, signal) {
  const target = url.replace(/\/+$/, "").replace(/(\/chat\/completions)?$/, "/chat/completions");
  let response;
  try {
    response = await fetch(target, {
      method: "POST",
      headers: { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) },
      body: JSON.stringify({ model, messages, stream: true }),
      signal,
      referrerPolicy: "no-referrer",
      credentials: "omit",
    });
  } catch (failure) {
    if (signal?.aborted) return;
    throw new ChatError("unreachable", String(failure.message));
  }
  if (!response.ok) {
    const said = (await response.text().catch(() => "")).slice(0, 300);
    throw new ChatError(CODES[response.status] ?? "failed", `HTTP ${response.status}`, said);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        const data = line.match(/^data:\s?(.*)$/)?.[1];
        if (data === "[DONE]") return;
        const token = data && tokenOf(data);
        if (token) yield token;
      }
    }
  } catch (failure) {
    if (signal?.aborted) return;
    throw failure instanceof ChatError ? failure : new ChatError("broken_off", String(failure.message));
  } finally {
    reader.cancel().catch(() => {});
  }
}

function tokenOf(data) {
  let event;
  try {
    event = JSON.parse(data);
  } catch {
    throw new ChatError("unexpected", "The endpoint sent something that is no chat stream.", data.slice(0, 200));
  }
  if (event.error) throw new ChatError("failed", event.error.message ?? "The endpoint failed.");
  return event.choices?.[0]?.delta?.content ?? "";
}
