// Holds the pipe to the gateway, and runs one program in a worker. Every line that it writes starts with a secret that
// the program cannot know: nothing but this file can speak for the sandbox, whatever the program writes.
//
// In:  {secret, worker}  when the process starts;  {program, inputs, limits}  once;  {id, text} or {id, error}  per call.
// Out: {kind: "call", id, name, text}, {kind: "print", text}, and at the end one of {kind: "result", text},
//      {kind: "error", url, message, stack}, {kind: "limit", limit}.
const WATCH_MILLISECONDS = 20;
const MAX_RUNNING_CALLS = 64;
const MAX_PRINT_LENGTH = 2 ** 16;
const MAX_ERROR_LENGTH = 10_000;
const UNCOUNTED_BYTES = 32 * 2 ** 20; // of the young generation, compiled code, and messages
const encoder = new TextEncoder();
const isWorkerReady = Promise.withResolvers();
const queuedCalls = [];
let runningCalls = 0;
let secret, worker, limits;

function write(message) {
  let bytes = encoder.encode(`${secret}${JSON.stringify(message)}\n`);
  while (bytes.length) bytes = bytes.subarray(Deno.stdout.writeSync(bytes));
}

function end(message) {
  write(message);
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
    write({ kind: "call", id, name: cut(name), text });
  } else queuedCalls.push({ id, name, text });
}

function takeOutput(text) {
  const whole = text.toWellFormed();
  for (let start = 0, stop; start < whole.length; start = stop) {
    stop = start + MAX_PRINT_LENGTH;
    if (isHighSurrogate(whole.charCodeAt(stop - 1))) stop++;
    write({ kind: "print", text: whole.slice(start, stop) });
  }
}

function takeMessage({ kind, id, name, text, url, error }) {
  if (kind === "ready") isWorkerReady.resolve();
  else if (kind === "call") takeCall({ id: Number(id), name: String(name), text: String(text) });
  else if (kind === "print") takeOutput(String(text));
  else if (kind === "result") end(isTooLong(text) ? { kind: "limit", limit: "output" } : { kind, text });
  else end({ kind: "error", url: cut(url), message: cut(error.message), stack: cut(error.stack) });
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

async function startProgram({ program, inputs }) {
  await isWorkerReady.promise;
  const { rss } = Deno.memoryUsage();
  const { user, system } = Deno.cpuUsage();
  setInterval(() => {
    const used = Deno.cpuUsage();
    if (used.user + used.system - user - system > limits.cpu_seconds * 1e6) end({ kind: "limit", limit: "cpu" });
    const bytes = Deno.memoryUsage().rss - rss;
    if (bytes > limits.memory_bytes + UNCOUNTED_BYTES) end({ kind: "limit", limit: "memory" });
  }, WATCH_MILLISECONDS);
  worker.postMessage({ program, inputs });
}

function answerCall(answer) {
  runningCalls--;
  worker.postMessage(answer);
  if (queuedCalls.length) takeCall(queuedCalls.shift());
}

async function receive(message) {
  if (message.worker) {
    secret = message.secret;
    startWorker(message.worker);
    // Deno tries for 150 ms to keep the first TypeScript on disk, where it can write nothing.
    await import("data:application/typescript,");
  } else if (message.program !== undefined) {
    limits = message.limits;
    await startProgram(message);
  } else answerCall(message);
}

let rest = "";
for await (const chunk of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop();
  for (const line of lines) await receive(JSON.parse(line));
}
Deno.exit(0); // the gateway has gone: nobody waits for the program
