"""Programs that try to get out of the sandbox for Python, or to harm the gateway from inside.

`SECRET_FILE`, `NEW_FILE` and `PORT` are replaced by a file with a secret, a file that does not exist, and the port of a
server that counts connections. A program that gets somewhere returns what it got.
"""

from __future__ import annotations

# They fail, or return nothing.
REACHING_OUT = {
    "read a file": 'open("SECRET_FILE").read()',
    "read a file in binary": 'open("SECRET_FILE", "rb").read()',
    "read a file by pathlib": 'from pathlib import Path\nPath("SECRET_FILE").read_text()',
    "read a file by a relative path": 'open("../../../../../../../../../..SECRET_FILE").read()',
    "read a file by proc": 'open("/proc/self/environ").read()',
    "read a file by its descriptor": "open(0).read()",
    "list a folder": 'import os\nos.listdir("/")',
    "list a folder by pathlib": 'from pathlib import Path\nlist(Path("/").iterdir())',
    "ask whether a file is there": 'from pathlib import Path\nPath("SECRET_FILE").exists() or None',
    "write a file": 'open("NEW_FILE", "w").write("x")',
    "write a file by pathlib": 'from pathlib import Path\nPath("NEW_FILE").write_text("x")',
    "make a folder": 'import os\nos.mkdir("NEW_FILE")',
    "rename a file": 'import os\nos.rename("SECRET_FILE", "NEW_FILE")',
    "remove a file": 'import os\nos.remove("SECRET_FILE")',
    "read the environment": 'import os\nos.environ["TOOLSCRIPT_SECRET"]',
    "read a variable": 'import os\nos.getenv("TOOLSCRIPT_SECRET")',
    "connect by socket": 'import socket\nsocket.create_connection(("127.0.0.1", PORT))\n"connected"',
    "connect by urllib": 'import urllib.request\nurllib.request.urlopen("http://127.0.0.1:PORT/").read()',
    "connect by http": 'import http.client\nhttp.client.HTTPConnection("127.0.0.1", PORT).connect()\n"connected"',
    "connect by asyncio": 'import asyncio\nawait asyncio.open_connection("127.0.0.1", PORT)\n"connected"',
    "run a command by subprocess": 'import subprocess\nsubprocess.check_output(["cat", "SECRET_FILE"])',
    "run a command by os": 'import os\nos.system("touch NEW_FILE")',
    "run a command by asyncio": 'import asyncio\nawait asyncio.create_subprocess_shell("touch NEW_FILE")\n"run"',
    "fork": "import os\nos.fork()",
    "start a thread": "import threading\nthreading.Thread(target=print).start()\n'started'",
    "start a process": "import multiprocessing\nmultiprocessing.Process(target=print).start()\n'started'",
    "kill a process": "import os\nos.kill(1, 0)\n'killed'",
    "import ctypes": "import ctypes\nctypes.CDLL(None)\n'loaded'",
    "import builtins": "import builtins\nbuiltins.open",
    "import by a function": '__import__("subprocess").check_output("ls")',
    "import by importlib": 'import importlib\nimportlib.import_module("socket")',
    "import the gateway": "import toolscript.settings\ntoolscript.settings",
    "import the sandbox": "import pydantic_monty\npydantic_monty",
    "import by eval": "eval(\"__import__('os').environ\")",
    "import by exec": "exec('import socket')\n'imported'",
    "climb to object": "().__class__.__bases__[0].__subclasses__()",
    "climb by a type": "type(()).__mro__[1].__subclasses__()",
    "climb by an error": "try:\n    1 / 0\nexcept Exception as e:\n    x = e.__traceback__.tb_frame.f_globals\nx",
    "climb by a function": "(lambda: 1).__globals__",
    "climb by the code of a function": "(lambda: 1).__code__",
    "climb by a generator": "(x for x in [1]).gi_frame.f_globals",
    "climb by a coroutine": "async def f():\n    pass\nf().cr_frame.f_globals",
    "climb by a format": '"{0.__class__.__init__.__globals__}".format(call_host)',
    "look into the host": "call_host.__globals__",
    "look into the host's closure": "call_host.__closure__",
    "look into the host's object": "call_host.__self__",
    "replace a method of the host": 'call_host.__call__ = lambda *a: "mine"\ncall_host()',
    "list the modules": "import sys\nsys.modules['os'].environ",
    "look at the frames": "import sys\nsys._getframe(1).f_globals",
    "collect all objects": "import gc\ngc.get_objects()",
    "open a shell": "breakpoint()\n'opened'",
    "read from the terminal": "input()",
    "look at the class of a result": "r = await call_host('double', {'number': 1})\nr.__class__.__mro__",
    "look at the type of the host": "type(call_host).__mro__",
    "look into the host by a wrong call": (
        "try:\n    await call_host()\nexcept TypeError as error:\n    found = str(error)\n"
        "found if 'HostCalls' in found or 'monty' in found.lower() else None"
    ),
    "climb by a chain of errors": (
        "try:\n    await call_host('double', 5)\nexcept Exception as error:\n    found = error.__cause__\nfound"
    ),
    "reach by names that look alike": "ｏｐｅｎ('SECRET_FILE').read()",
    "load a pickle": 'import pickle\npickle.loads(b"cos\\nsystem\\n(S\\"touch NEW_FILE\\"\\ntR.")',
}
# They end by a limit, or fail; never by harming something else.
ENDLESS = {
    "loop": "while True:\n    pass",
    "loop that catches everything": (
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass"
    ),
    "loop in a comprehension": "sum(1 for a in range(10**9) for b in range(10**9))",
    "loop over names that do not exist": (
        "while True:\n    try:\n        nothing_here\n    except NameError:\n        pass"
    ),
    "loop of host calls": 'while True:\n    await call_host("double", {"number": 1})',
    "loop of failing host calls": (
        "while True:\n    try:\n        await call_host(1, 2)\n    except Exception:\n        pass"
    ),
    "loop of sleeps": "import asyncio\nwhile True:\n    await asyncio.sleep(0)",
    "sleep": "import time\ntime.sleep(10**6)",
    "sleep without blocking": "import asyncio\nawait asyncio.sleep(10**6)",
    "recurse": "def f():\n    return f()\nf()",
    "recurse by two": "def f():\n    return g()\ndef g():\n    return f()\nf()",
    "recurse by sorting": "def f(x):\n    return sorted([1, 2], key=f)\nf(1)",
    "recurse by repr": "x = []\nfor _ in range(10**6):\n    x = [x]\nrepr(x)",
    "recurse by comparing": ("x, y = [], []\nfor _ in range(10**5):\n    x, y = [x], [y]\nwhile True:\n    x == y"),
    "grow a list": "x = []\nwhile True:\n    x.append(x)",
    "grow a string": 'x = "x"\nwhile True:\n    x += x',
    "grow a dictionary": "x = {}\nwhile True:\n    x[len(x)] = str(len(x)) * 100",
    "grow a number": "x = 2\nwhile True:\n    x *= x",
    "one large allocation": '"x" * 10**12',
    "a large power": "9 ** 9 ** 9",
    "a large shift": "1 << 10**12",
    "a large factorial": "import math\nmath.factorial(10**8)",
    "a wide format": '"{:1000000000000}".format(1)',
    "a large range": "list(range(10**12))",
    "a large number as text": "str(10**10**6)",
    "a slow expression": 'import re\nre.match(r"(a|a)*\\1$", "a" * 100_000 + "b") or [0] * 10**9',
    "a slow replacement": "import re\nre.sub('a*?', 'x' * 1_000_000, 'a' * 1_000_000)",
    "a slow power": "int('9' * 4000) ** 5000",
    "a wide f-string": "f'{1:>{10**9}}'",
    "a large set": "set(range(10**8))",
    "grow the keys of a dictionary": "x, i = {}, 0\nwhile True:\n    i += 1\n    x['k' + str(i)] = i",
    "catch a lack of memory": (
        "x = []\nwhile True:\n    try:\n        x.append('x' * 10**7)\n    except MemoryError:\n        pass"
    ),
    "a large expression": "import re\nre.compile('((a{1000}){1000}){1000}')",
    "return keys that are no numbers": "{float('nan'): 1}",
    "return deep objects": (
        "class A:\n    pass\na = A()\nfor _ in range(5000):\n    b = A()\n    b.x = a\n    a = b\na"
    ),
    "a chain of errors": (
        "e = None\nfor i in range(10**5):\n    try:\n        raise ValueError(str(i)) from e\n"
        "    except ValueError as x:\n        e = x\nraise e"
    ),
    "gather many": (
        'import asyncio\nawait asyncio.gather(*[call_host("double", {"number": 1}) for _ in range(10**5)])'
    ),
    "print forever": 'while True:\n    print("x" * 10_000)',
    "print empty lines": "while True:\n    print()",
    "print much at once": 'print("x" * 30_000_000)',
    "return much": '"x" * 20_000_000',
    "return shared lists": "x = [0] * 100\nfor _ in range(8):\n    x = [x] * 100\nx",
    "return a deep list": "x = []\nfor _ in range(10**5):\n    x = [x]\nx",
    "return what is no number": 'float("nan")',
    "call with shared lists": (
        'x = [0] * 100\nfor _ in range(8):\n    x = [x] * 100\nawait call_host("double", {"number": x})'
    ),
    "return large numbers": "[10**4200] * 3000",
    "call with large numbers": 'await call_host("double", {"number": [10**4200] * 3000})',
    "loop of calls with too much": (
        'x = "x" * 2_000_000\n'
        "while True:\n    try:\n        await call_host('double', {'number': x})\n    except Exception:\n        pass"
    ),
    "raise a large error": 'raise ValueError("x" * 20_000_000)',
    "nested brackets": "(" * 50_000 + ")" * 50_000,
    "nested blocks": "\n".join(" " * depth + "if True:" for depth in range(3_000)) + "\n" + " " * 3_000 + "pass\n1/0",
    "a null byte": "x = 1\x00\n1/0",
}
