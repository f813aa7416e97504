// Holds the pipe to the gateway, and runs one program in a worker. Every line that it writes starts with a secret that
// the program cannot know: nothing but this file can speak for the sandbox, whatever the program writes.
//
// In:  {secret, worker}  when the process starts;  {program, limits} + inputs  once;  {id} + text or {id, error}  per call.
// Out: {kind: "begin"}, {kind: "call", id, name} + text, {kind: "print", text}, and at the end one of
//      {kind: "result"} + text, {kind: "error", url, message, stack}, {kind: "limit", limit}, with the processor time
//      since the beginning in `seconds`.
// What stands after a + is JSON on a line of its own; of those that come in, `has_text` says that it follows.
const WATCH_MILLISECONDS = 20;
const WATCHED_MESSAGES = 100;
const MAX_RUNNING_CALLS = 64;
const MAX_PRINT_LENGTH = 2 ** 16;
const MAX_ERROR_LENGTH = 10_000;
const UNCOUNTED_BYTES = 32 * 2 ** 20; // of the young generation, compiled code, and messages
const encoder = new TextEncoder();
const isWorkerReady = Promise.withResolvers();
const queuedCalls = [];
let runningCalls = 0;
let messages = 0;
let printed = "";
let secret, worker, limits, started;

function write(message, text) {
  const following = text === undefined ? "" : `${secret}${text}\n`;
  let bytes = encoder.encode(`${secret}${JSON.stringify(message)}\n${following}`);
  while (bytes.length) bytes = bytes.subarray(Deno.stdout.writeSync(bytes));
}

function end(message, text) {
  writeOutput();
  write({ ...message, seconds: started ? readProcessorTime() - started.processorTime : 0 }, text);
  Deno.exit(0);
}

const cut = (text) => String(text).slice(0, MAX_ERROR_LENGTH).toWellFormed();
const isTooLong = (text) => text.length > limits.output_bytes || encoder.encode(text).length > limits.output_bytes;

const isHighSurrogate = (code) => code >= 0xd800 && code <= 0xdbff;

function takeCall({ id, name, text }) {
  if (isTooLong(text)) {
    const error = `VALIDATION_ERROR: more than ${limits.output_bytes} bytes of arguments`;
    worker.postMessage({ id, error });
  } else if (runningCalls < MAX_RUNNING_CALLS) {
    runningCalls++;
    writeOutput();
    write({ kind: "call", id, name: cut(name) }, text);
  } else queuedCalls.push({ id, name, text });
}

// A million empty lines are a few messages to the gateway.
function takeOutput(text) {
  printed += text;
  if (printed.length >= MAX_PRINT_LENGTH) writeOutput();
}

function writeOutput() {
  const whole = printed.toWellFormed();
  printed = "";
  for (let start = 0, stop; start < whole.length; start = stop) {
    stop = start + MAX_PRINT_LENGTH;
    if (isHighSurrogate(whole.charCodeAt(stop - 1))) stop++;
    write({ kind: "print", text: whole.slice(start, stop) });
  }
}

function takeMessage({ kind, id, name, text, url, error }) {
  if (++messages % WATCHED_MESSAGES === 0) watch(); // a flood of messages leaves no time for timers
  if (kind === "ready") isWorkerReady.resolve();
  else if (kind === "call") takeCall({ id: Number(id), name: String(name), text: String(text) });
  else if (kind === "print") takeOutput(String(text));
  else if (kind === "result") endWithResult(String(text));
  else end({ kind: "error", url: cut(url), message: cut(error.message), stack: cut(error.stack) });
}

function endWithResult(text) {
  if (isTooLong(text)) end({ kind: "limit", limit: "output" });
  else end({ kind: "result" }, text);
}

function startWorker(source) {
  worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })), { type: "module" });
  worker.addEventListener("message", ({ data }) => takeMessage(data));
  worker.addEventListener("error", (event) => {
    event.preventDefault();
    const { message, filename: url, lineno, colno } = event;
    end({ kind: "error", url: cut(url), message: cut(message), stack: `${url}:${lineno}:${colno}` });
  });
}

const readProcessorTime = () => Object.values(Deno.cpuUsage()).reduce((sum, microseconds) => sum + microseconds / 1e6, 0);

function watch() {
  writeOutput();
  if (readProcessorTime() - started.processorTime > limits.cpu_seconds) end({ kind: "limit", limit: "cpu" });
  const bytes = Deno.memoryUsage().rss - started.rss;
  if (bytes > limits.memory_bytes + UNCOUNTED_BYTES) end({ kind: "limit", limit: "memory" });
}

async function startProgram({ program, text: inputs }) {
  await isWorkerReady.promise;
  write({ kind: "begin" });
  started = { processorTime: readProcessorTime(), rss: Deno.memoryUsage().rss };
  setInterval(watch, WATCH_MILLISECONDS);
  worker.postMessage({ program, inputs });
}

function answerCall({ id, text, error }) {
  runningCalls--;
  worker.postMessage({ id, text, error });
  if (queuedCalls.length) takeCall(queuedCalls.shift());
}

async function receive(message) {
  if (message.worker) {
    secret = message.secret;
    startWorker(message.worker);
    // Deno tries for 150 ms to keep the first TypeScript on disk, where it can write nothing.
    await import("data:application/typescript,");
    worker.postMessage({});
  } else if (message.program !== undefined) {
    limits = message.limits;
    await startProgram(message);
  } else answerCall(message);
}

async function* readLines() {
  let parts = []; // of one line: joined once, because a line can have megabytes
  for await (const chunk of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
    const [first, ...others] = chunk.split("\n");
    parts.push(first);
    for (const other of others) {
      yield parts.join("");
      parts = [other];
    }
  }
}

const lines = readLines();
for await (const line of lines) {
  const message = JSON.parse(line);
  if (message.has_text) message.text = (await lines.next()).value;
  await receive(message);
}
Deno.exit(0); // the gateway has gone: nobody waits for the program
