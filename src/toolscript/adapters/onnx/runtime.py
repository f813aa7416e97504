"""ONNX Runtime without its telemetry. Every other module imports `onnxruntime` from here.

Since version 1.29 the import itself creates a device id and a queue of events in the user's cache folder, and starts a
thread that sends the events to a collector of its makers. ORT_DISABLE_TELEMETRY=1 stops all of that, but only if it is
set before the import. A user who wants to send the events sets it to 0.
"""

from __future__ import annotations

import os

VARIABLE = "ORT_DISABLE_TELEMETRY"
is_telemetry_wanted = os.environ.get(VARIABLE, "").strip().lower() in {"0", "false", "no", "off"}
if not is_telemetry_wanted:
    os.environ[VARIABLE] = "1"

import onnxruntime  # noqa: E402

if not is_telemetry_wanted:
    onnxruntime.disable_telemetry_events()  # Windows: the variable does not stop events for the system's own tracing

__all__ = ["onnxruntime"]
