"""The programs of the contract in Python."""

from __future__ import annotations

from tests.contracts.sandbox.contract_programs import ContractPrograms

PYTHON_PROGRAMS = ContractPrograms(
    return_record='{"sum": 1 + 2, "names": ["a", "b"], "none": None}',
    return_nothing="total = 1",
    print_lines='print("first")\nprint("second")\n1',
    double='await call_host("double", {"number": 21})',
    meet_ten=(
        "import asyncio\n"
        'found = await asyncio.gather(*[call_host("meet", {"of": 10}) for _ in range(10)])\n'
        "return len(found)"
    ),
    catch_failure='try:\n    await call_host("fail", {})\nexcept Exception as error:\n    text = str(error)\ntext',
    fail_uncaught='total = 1\nawait call_host("fail", {})',
    raise_in_line_3='def give_up():\n    # a reason\n    raise ValueError("broken")\ngive_up()',
    raise_in_line_2="text = 'ü'\n1 / 0",
    sleep="import asyncio\nawait asyncio.sleep(0.5)",
    wait='await call_host("wait", {})',
    swallow_and_wait=(
        'try:\n    await call_host("stop", {})\nexcept BaseException:\n    pass\nawait call_host("wait", {})'
    ),
    loop="while True:\n    pass",
    fill_memory='kept = []\nwhile True:\n    kept.append("x" * 100_000)',
    return_much='"x" * 2_000_000',
    echo_many=(
        'many = [{"number": n, "text": mark[n % 10] + "ü"} for n in range(20_000)]\n'
        'await call_host("echo", {"value": many})'
    ),
    return_shared="value = [0] * 100\nfor _ in range(8):\n    value = [value] * 100\nvalue",
    print_forever='while True:\n    print("x" * 1000)',
    bound='greet("you") + suffix',
    bindings='def greet(name):\n    return "hello " + name\n',
    types="def greet(name: str) -> str: ...\nsuffix: str\n",
    wrong_type="total = 1\ngreet(total)",
    wrong_syntax="total = 1\ntotal = = 2",
    set_global="left = 1\nleft",
    read_global="left",
    refuse_arguments=(
        "for _ in range(2):\n    try:\n        await call_host('double', [1])\n"
        "    except Exception as error:\n        text = str(error)\ntext"
    ),
    break_host="try:\n    await call_host('break', {})\nexcept BaseException:\n    pass\nawait call_host('wait', {})",
)
