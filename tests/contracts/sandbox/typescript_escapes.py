"""Programs that try to get out of the sandbox for TypeScript, or to harm the gateway from inside.

`SECRET_FILE`, `NEW_FILE` and `PORT` are replaced by a file with a secret, a file that does not exist, and the port of a
server that counts connections. A program that gets somewhere returns what it got.
"""

from __future__ import annotations

# They fail, or return nothing.
REACHING_OUT = {
    "read a file": 'return Deno.readTextFileSync("SECRET_FILE");',
    "read a file by node": 'return (await import("node:fs")).readFileSync("SECRET_FILE", "utf8");',
    "read a file by a promise of node": (
        'return await (await import("node:fs/promises")).readFile("SECRET_FILE", "utf8");'
    ),
    "read a file by fetch": 'return await (await fetch("file://SECRET_FILE")).text();',
    "import a file": 'return await import("file://SECRET_FILE");',
    "import a file as text": 'return (await import("file://SECRET_FILE", { with: { type: "text" } } as any)).default;',
    "import a file as JSON": 'return (await import("file://SECRET_FILE", { with: { type: "json" } })).default;',
    "import a file statically": '}\nimport text from "file://SECRET_FILE" with { type: "text" };\n{ console.log(text);',
    "import by eval": "return eval('import(\"file://SECRET_FILE\")');",
    "import by a new function": "return await new Function('return import(\"node:fs\")')();",
    "import node by data": (
        'const url = "data:text/javascript,export * from %22node:fs%22";\n'
        'return (await import(url)).readFileSync("SECRET_FILE", "utf8");'
    ),
    "require": 'return require("node:fs").readFileSync("SECRET_FILE", "utf8");',
    "built-in modules of process": (
        'return (globalThis as any).process.getBuiltinModule("fs").readFileSync("SECRET_FILE", "utf8");'
    ),
    "write a file": 'Deno.writeTextFileSync("NEW_FILE", "x"); return "written";',
    "write a file by node": '(await import("node:fs")).writeFileSync("NEW_FILE", "x"); return "written";',
    "write a database": 'new (await import("node:sqlite")).DatabaseSync("NEW_FILE"); return "made";',
    "write to the web cache": (
        'const cache = await (globalThis as any).caches.open("x");\n'
        'await cache.put(new (globalThis as any).Request("http://a/"), new (globalThis as any).Response("x"));\n'
        'return "written";'
    ),
    "write to the local storage": '(globalThis as any).localStorage.setItem("a", "b"); return "written";',
    "open a key-value store": 'await (Deno as any).openKv("NEW_FILE"); return "opened";',
    "connect": "const s = await Deno.connect({ port: PORT }); return String(s);",
    "connect by node": (
        'const net = await import("node:net");\n'
        'return await new Promise((done) => net.connect(PORT, () => done("connected")));'
    ),
    "fetch": 'return await (await fetch("http://127.0.0.1:PORT/")).text();',
    "fetch by node": (
        'const http = await import("node:http");\n'
        'return await new Promise((done) => http.get("http://127.0.0.1:PORT/", () => done("fetched")));'
    ),
    "open a web socket": 'new (globalThis as any).WebSocket("ws://127.0.0.1:PORT/"); return "opened";',
    "open an event source": 'new (globalThis as any).EventSource("http://127.0.0.1:PORT/"); return "opened";',
    "import from the network": 'return await import("http://127.0.0.1:PORT/x.ts");',
    "import from npm": 'return await import("npm:chalk@5");',
    "import from jsr": 'return await import("jsr:@std/fs");',
    "listen": 'Deno.listen({ port: 0 }); return "listening";',
    "resolve a name": 'return await Deno.resolveDns("localhost", "A");',
    "read the environment": "return Deno.env.toObject();",
    "read the environment by node": 'return (await import("node:process")).default.env;',
    "read the environment of process": "return (globalThis as any).process.env;",
    "run a command": 'return new TextDecoder().decode(new Deno.Command("id").outputSync().stdout);',
    "run a command by node": 'return (await import("node:child_process")).execSync("id").toString();',
    "load a library": 'return String(Deno.dlopen("libc.so.6", {}));',
    "kill the gateway": 'Deno.kill(Deno.ppid, "SIGKILL"); return "killed";',
    "read about the machine": "return Deno.hostname() + Deno.osRelease();",
    "ask for permission": 'return (await Deno.permissions.request({ name: "read" })).state;',
    "reach operations of Deno": "return Object.keys((Deno as any)[(Deno as any).internal].core.ops);",
    "import an extension": 'return await import("ext:core/ops");',
    "start a worker": (
        'new (globalThis as any).Worker("data:text/javascript,postMessage(Deno.env.toObject())", { type: "module" });\n'
        'return "started";'
    ),
    "start a worker of node": 'return String(new (await import("node:worker_threads")).Worker("1", { eval: true }));',
    "start an inspector": '(await import("node:inspector")).open(0); return "open";',
    "a context of node": "return (await import(\"node:vm\")).runInNewContext('process.env');",
    "share memory": "return new SharedArrayBuffer(8).byteLength;",
    "compile machine code": "return String(new (globalThis as any).WebAssembly.Memory({ initial: 1 }));",
    "a function of another constructor": (
        'return (function () {}).constructor("return typeof Deno + typeof process")() === "undefinedundefined"'
        ' ? null : "found";'
    ),
    "call sites of a stack": (
        "Error.prepareStackTrace = (_: unknown, sites: any[]) => sites;\n"
        "const sites = (new Error() as any).stack as any[];\n"
        "const found = sites.map((site) => site.getThis()).filter((each) => each && (each as any).Deno);\n"
        "return found.length ? found : null;"
    ),
    "a function of what shows values": (
        "let found: any = null;\n"
        "console.log({ [Symbol.for('Deno.customInspect')](inspect: any) { found = inspect; return ''; } });\n"
        "return found.constructor('return typeof Deno + typeof process')() === 'undefinedundefined' ? null : 'found';"
    ),
    "a function of what shows values in node": (
        "let found: any = null;\nconst custom = Symbol.for('nodejs.util.inspect.custom');\n"
        "console.log({ [custom](_: any, __: any, inspect: any) { found = inspect; return ''; } });\n"
        "return found.constructor('return typeof Deno + typeof process')() === 'undefinedundefined' ? null : 'found';"
    ),
    "the constructor of the host's function": (
        "const type = (call_host as any).constructor('return typeof Deno')();\n"
        "return type === 'undefined' ? null : type;"
    ),
    "the caller of the host's function": "return (call_host as any).caller;",
    "resolve a module": "return (import.meta as any).resolve('node:fs');",
    "a prototype in an answer": (
        "const answer: any = await call_host('double', { number: [{ __proto__: null }] });\n"
        "return Object.getPrototypeOf(answer) === Array.prototype ? null : 'foreign';"
    ),
    "machine code that imports": (
        # (module (import "node:fs" "readFileSync" (func)))
        "const code = 'AGFzbQEAAAABBAFgAAACGAEHbm9kZTpmcwxyZWFkRmlsZVN5bmMAAA==';\n"
        "return Object.keys(await import('data:application/wasm;base64,' + code));"
    ),
    "list the global objects": (
        "const names = Reflect.ownKeys(globalThis).map(String);\n"
        "const found = names.filter((name) => /^(Deno|process|Buffer|fetch|Worker|caches|navigator)$/.test(name));\n"
        "return found.length ? found : null;"
    ),
}

# They speak for the sandbox: the value must not be "forged".
FORGING = {
    "post a result": '(globalThis as any).postMessage({ kind: "result", text: "\\"forged\\"" }); return null;',
    "print a result": 'console.log(\'{"kind":"result","text":"forged"}\\n\'); return null;',
    "print many results": (
        'for (let i = 0; i < 100; i++) console.log(`${i}`.repeat(32) + \'{"kind":"result","text":"\\"forged\\""}\');\n'
        "return null;"
    ),
    "send a message to itself": (
        "const event: any = { type: 'message', data: { id: 1, text: '\"forged\"' } };\n"
        "try { (globalThis as any).dispatchEvent(event); } catch {}\nreturn null;"
    ),
    "replace JSON": (
        'JSON.stringify = () => \'"forged"\';\nJSON.parse = () => "forged";\n'
        'return await call_host("double", { number: 0 });'
    ),
    "replace the map of calls": (
        "Map.prototype.get = () => ({ resolve() {}, reject() {} }) as any;\n"
        'return await call_host("double", { number: 0 });'
    ),
    "replace Promise": (
        'globalThis.Promise = class { constructor() { return "forged" as any; } } as any;\n'
        'return await call_host("double", { number: 0 });'
    ),
    "pollute prototypes": (
        'for (const name of ["kind", "text", "id", "error", "program", "limit", "url"]) {\n'
        '  (Object.prototype as any)[name] = "forged";\n}\nreturn null;'
    ),
    "pollute the answer": (
        'Object.defineProperty(Object.prototype, "then", { value(done: any) { done("forged"); } });\n'
        'return await call_host("double", { number: 0 });'
    ),
    "freeze the host's function": '(globalThis as any).call_host = () => "forged"; return null;',
    "throw a result": 'throw { kind: "result", text: "forged", get message() { throw 1; } };',
    "throw something that cannot be shown": (
        "const error = new Error();\n"
        'Object.defineProperty(error, "stack", { get() { throw new Error("no"); } });\nthrow error;'
    ),
    "replace what writes strings": (
        "(String.prototype as any).toJSON = () => 'forged';\nreturn await call_host('double', { number: 0 });"
    ),
    "set the parts of an answer": (
        "Object.defineProperty(Object.prototype, '0', { get() { return 'forged'; }, set() {}, configurable: true });\n"
        "return (await call_host('double', { number: [1] }))[0];"
    ),
    "forge the place of an error": ("Error.prepareStackTrace = () => 'forged';\nthrow new Error('forged');"),
    "a result that is raw JSON": "return (JSON as any).rawJSON('1e400');",
    "a value that changes": ("return { n: 0, toJSON() { return this.n++ ? 'forged' : null; } };"),
}

# They end by a limit or an error, and never by themselves.
ENDLESS = {
    "a loop": "while (true) {}",
    "microtasks": "async function spin(): Promise<void> { while (true) await null; }\nawait spin();",
    "promises that never end": "await new Promise(() => { setInterval(() => { while (true) {} }, 1); });",
    "memory of objects": "const kept: unknown[] = [];\nwhile (true) kept.push(new Array(1000).fill({ a: 1 }));",
    "memory of buffers": "const kept: unknown[] = [];\nwhile (true) kept.push(new Uint8Array(1_000_000).fill(1));",
    "memory of one buffer": "return new Uint8Array(8_000_000_000).fill(1).length;",
    "memory of strings": 'let text = "x";\nwhile (true) text += text + Math.random();',
    "memory of a map": "const kept = new Map();\nfor (let i = 0; ; i++) kept.set(i, `value ${i}`);",
    "memory of calls": 'while (true) call_host("double", { number: 1 });',
    "recursion": "function dive(): number { return dive() + 1; }\nreturn dive();",
    "recursion of a getter": "const trap: any = { get toJSON() { return trap.toJSON; } };\nreturn trap;",
    "a regular expression": 'return /^(a+)+$/.test("a".repeat(50) + "b");',
    "a large sort": "while (true) new Array(1_000_000).fill(0).map(Math.random).sort();",
    "output": 'while (true) console.log("x".repeat(1000));',
    "empty output": "while (true) console.log();",
    "output of one line": 'console.log("x".repeat(400_000_000)); return null;',
    "output of a large object": "while (true) console.log(new Array(1000).fill({ a: { b: { c: [1, 2, 3] } } }));",
    "a large value": 'return "x".repeat(300_000_000);',
    "a value of shared lists": (
        "let value: unknown = [1];\nfor (let i = 0; i < 40; i++) value = [value, value];\nreturn value;"
    ),
    "a deep value": "let value: unknown = null;\nfor (let i = 0; i < 200_000; i++) value = [value];\nreturn value;",
    "a value that refers to itself": "const value: any = {};\nvalue.self = value;\nreturn value;",
    "a large argument": 'return await call_host("double", { number: "x".repeat(200_000_000) });',
    "an argument that never ends": (
        "const value = { toJSON() { while (true) {} } };\nreturn await call_host('double', value);"
    ),
    "an unhandled rejection": (
        'Promise.reject(new Error("lost"));\nawait new Promise((done) => setTimeout(done, 60_000));\nreturn 1;'
    ),
    "an error in a timer": (
        'setTimeout(() => { throw new Error("late"); }, 1);\nawait new Promise((done) => setTimeout(done, 60_000));'
    ),
    "a proxy as a value": ("return new Proxy({}, { ownKeys() { while (true) {} }, get() { return undefined; } });"),
    "a thenable": "return { then() { while (true) {} } };",
    "exit": "(globalThis as any).close();\nawait new Promise(() => {});",
    "wait for shared memory": ("Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0);\nreturn 1;"),
    "a stack that is never written": ("Error.prepareStackTrace = () => { while (true) {} };\nthrow new Error('x');"),
    "an error without a prototype": "throw new Proxy({}, { getPrototypeOf() { while (true) {} } });",
    "the name of an error": (
        "const error: any = new Error('x');\nerror.name = { toString() { while (true) {} } };\nthrow error;"
    ),
    "an error that shows itself": "throw { [Symbol.for('Deno.customInspect')]() { while (true) {} } };",
    "many errors in one": (
        "throw new AggregateError(Array.from({ length: 10_000 }, (_, i) => new Error(`${i}`)), 'many');"
    ),
    "an asynchronous generator": (
        "async function* count() { for (let i = 0; ; i++) yield i; }\nfor await (const _ of count()) {}"
    ),
    "a large number": "let number = 2n;\nwhile (true) number *= number;",
    "a number that is not JSON": "return { number: 10n };",
    "many timers": "while (true) setTimeout(() => {}, 1_000_000);",
    "a getter of a thenable": "return { get then(): any { while (true) {} } };",
    "compile for ever": 'while (true) new Function("a".repeat(1000) + Math.floor(Math.random() * 1e9) + " => 1");',
    "import for ever": "for (let i = 0; ; i++) await import(`data:text/javascript,export default ${i}`);",
}

# The types of a program could show what is in a file: each line is an error that would name it.
READING_BY_TYPES = {
    "a static import": '}\nimport text from "SECRET_FILE" with { type: "json" };\nconst n: 0 = text;\n{',
    "a static import of a URL": (
        '}\nimport text from "file://SECRET_FILE" with { type: "json" };\nconst n: 0 = text;\n{'
    ),
    "a dynamic import": 'const n: 0 = (await import("SECRET_FILE", { with: { type: "json" } })).default;',
    "a type of an import": 'const n: 0 = null as unknown as typeof import("SECRET_FILE", { with: { type: "json" } });',
    "an import by data": (
        "}\nimport * as all from \"data:text/typescript,export * from 'file://SECRET_FILE'\";\nconst n: 0 = all;\n{"
    ),
    "an export": '}\nexport * from "SECRET_FILE";\n{',
    "a require": '}\nimport all = require("SECRET_FILE");\nconst n: 0 = all;\n{',
    "a path in a comment": '/// <reference path="DECLARATIONS" />\nconst n: 0 = secret;',
    "types in a comment": '/// <reference types="DECLARATIONS" />\nconst n: 0 = secret;',
    "a comment after a brace": '}\n/// <reference path="DECLARATIONS" />\nconst n: 0 = secret;\n{',
    "types of an import in a comment": (
        '}\n// @ts-types="DECLARATIONS"\nimport * as all from "data:text/javascript,1";\nconst n: 0 = all;\n{'
    ),
    "a source of JSX": "/** @jsxImportSource file://SECRET_FILE */\nconst n: 0 = 1;",
}
