"""The programs of the contract in TypeScript."""

from __future__ import annotations

from tests.contracts.sandbox.contract_programs import ContractPrograms

TYPESCRIPT_PROGRAMS = ContractPrograms(
    return_record='const names: string[] = ["a", "b"];\nreturn { sum: 1 + 2, names, none: null };',
    return_nothing="const total = 1;",
    print_lines='console.log("first");\nconsole.log("second");\nreturn 1;',
    double='return await call_host("double", { number: 21 });',
    meet_ten=(
        'const calls = Array.from({ length: 10 }, () => call_host("meet", { of: 10 }));\n'
        "return (await Promise.all(calls)).length;"
    ),
    catch_failure='try {\n  await call_host("fail", {});\n} catch (error) {\n  return String(error);\n}',
    fail_uncaught='const total = 1;\nawait call_host("fail", {});',
    raise_in_line_3='function giveUp() {\n  // a reason\n  throw new Error("broken");\n}\ngiveUp();',
    raise_in_line_2="const text: string = 'ü';\nthrow new Error(text);",
    sleep="await new Promise((done) => setTimeout(done, 500));",
    wait='await call_host("wait", {});',
    swallow_and_wait='try {\n  await call_host("stop", {});\n} catch {}\nawait call_host("wait", {});',
    loop="while (true) {}",
    fill_memory='const kept: string[][] = [];\nwhile (true) kept.push(new Array(100_000).fill("x"));',
    return_much='return "x".repeat(2_000_000);',
    echo_many=(
        "declare const mark: string[];\n"
        'const many = Array.from({ length: 20_000 }, (_, n) => ({ number: n, text: mark[n % 10] + "ü" }));\n'
        'return await call_host("echo", { value: many });'
    ),
    return_shared=(
        "let value: unknown = new Array(100).fill(0);\n"
        "for (let i = 0; i < 8; i++) value = new Array(100).fill(value);\n"
        "return value;"
    ),
    print_forever='while (true) console.log("x".repeat(1000));',
    bound='return greet("you") + suffix;',
    bindings='function greet(name: string): string {\n  return "hello " + name;\n}\n',
    types="declare function greet(name: string): string;\ndeclare const suffix: string;\n",
    wrong_type="const total = 1;\ngreet(total);",
    wrong_syntax="let total = 1;\ntotal = = 2;",
    set_global="(globalThis as any).left = 1;\nreturn (globalThis as any).left;",
    read_global="return (globalThis as any).left.toString();",
    refuse_arguments=(
        'let text = "";\nfor (const each of [1, 2]) {\n'
        'try { await call_host("double", [each] as any); } catch (error) { text = String(error); }\n}\nreturn text;'
    ),
    break_host='try { await call_host("break", {}); } catch (_) { /* on */ }\nawait call_host("wait", {});',
)
