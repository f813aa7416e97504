"""Trains the encoder that the package brings: from tools and queries to an ONNX file with its checksum.

`prepare` builds texts with the package's own rules, so that training sees what a search embeds. The other steps need
PyTorch (requirements/training.txt) and nothing of the package, so that they run on any machine with a GPU.

Stops the telemetry of ONNX Runtime before a step imports it, as `toolscript.adapters.onnx.runtime` does in the package.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
