// Runs one program in an isolate of its own: without permissions, Deno's and Node's objects, and standard output.
// What the bridge needs is taken before the program starts, so that a program that replaces it harms only itself.
const { inspect } = Deno;
const { createObjectURL } = URL;
const { stringify, parse } = JSON;
const { apply, deleteProperty, getPrototypeOf, ownKeys } = Reflect;
const { defineProperty, freeze, fromEntries, values, prototype: objectPrototype } = Object;
const { from: arrayFrom } = Array;
const { get, set, delete: remove } = Map.prototype;
const [BlobClass, ErrorClass, MapClass, PromiseClass, SetClass] = [Blob, Error, Map, Promise, Set];
const send = postMessage.bind(globalThis);

const KEPT = new Set(
  `Object Function Array Number parseFloat parseInt Infinity NaN undefined Boolean String Symbol Date Promise RegExp Error
  AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError globalThis JSON Math Intl ArrayBuffer
  Uint8Array Int8Array Uint16Array Int16Array Uint32Array Int32Array BigUint64Array BigInt64Array Uint8ClampedArray
  Float16Array Float32Array Float64Array DataView Map BigInt Set Iterator WeakMap WeakSet Proxy Reflect
  FinalizationRegistry WeakRef decodeURI decodeURIComponent encodeURI encodeURIComponent escape unescape eval isFinite
  isNaN queueMicrotask TextDecoder TextEncoder URL URLSearchParams atob btoa clearInterval clearTimeout setInterval
  setTimeout structuredClone Temporal SuppressedError DisposableStack AsyncDisposableStack DOMException constructor
  dispatchEvent`.split(/\s+/),
);

const calls = new Map();
let lastCall = 0;

function callHost(name, parameters) {
  const failure = new ErrorClass(); // made here, because its stack has the line of the call
  return new PromiseClass((resolve, reject) => {
    const text = stringify(parameters === undefined ? {} : parameters);
    const id = ++lastCall;
    apply(set, calls, [id, { resolve, reject, failure }]);
    send({ kind: "call", id, name: `${name}`, text: `${text}` });
  });
}

function settleCall({ id, text, error }) {
  const call = apply(get, calls, [id]);
  apply(remove, calls, [id]);
  if (error === undefined) return call.resolve(parse(text));
  defineProperty(call.failure, "message", { value: error, configurable: true, writable: true });
  call.reject(call.failure);
}

function print(...values) {
  let line = "";
  for (let i = 0; i < values.length; i++) {
    line += (i ? " " : "") + (typeof values[i] === "string" ? values[i] : inspect(values[i]));
  }
  send({ kind: "print", text: `${line}\n` });
}

function describeError(error) {
  try {
    if (!(error instanceof ErrorClass)) return { message: inspect(error), stack: "" };
    return { message: `${error.name}: ${error.message}`, stack: `${error.stack}` };
  } catch {
    return { message: "the program threw a value that cannot be shown", stack: "" };
  }
}

function removeGlobals() {
  for (const key of KEPT) globalThis[key]; // some are loaded by their first use, which needs what is removed
  for (let scope = globalThis; scope !== objectPrototype; scope = getPrototypeOf(scope)) {
    for (const key of ownKeys(scope)) if (typeof key === "string" && !KEPT.has(key)) deleteProperty(scope, key);
  }
  deleteProperty(URL, "createObjectURL");
}

function defineGlobals(inputs) {
  const console = freeze({ log: print, info: print, debug: print, warn: print, error: print });
  defineProperty(globalThis, "console", { value: console });
  defineProperty(globalThis, "call_host", { value: callHost });
  for (const key of ownKeys(inputs)) defineProperty(globalThis, key, { value: inputs[key], writable: true });
}

const locate = (program) => createObjectURL(new BlobClass([program], { type: "application/typescript" }));

// The first import of an isolate takes 10 ms more than the others.
async function prepare() {
  await import(locate("export const ready: boolean = true;"));
  send({ kind: "ready" });
}

// What JSON.stringify would make an empty object of.
function convert(value) {
  if (value instanceof MapClass) return fromEntries(value);
  if (value instanceof SetClass) return arrayFrom(value);
  if (typeof value === "object" && value !== null && values(value).some((part) => part instanceof PromiseClass)) {
    throw new ErrorClass("the program's value has a call that was not awaited: use `await Promise.all(calls)`");
  }
  return value;
}

async function run({ program, inputs }) {
  defineGlobals(parse(inputs));
  const url = locate(program);
  try {
    const { default: main } = await import(url);
    const value = stringify(convert(await main()));
    send({ kind: "result", text: value === undefined ? "null" : value });
  } catch (error) {
    send({ kind: "error", url, error: describeError(error) });
  }
}

addEventListener("message", ({ data }) => {
  if (data.program !== undefined) run(data);
  else if (data.id !== undefined) settleCall(data);
  else prepare();
});
removeGlobals();
