"""Models that run in this process, by ONNX Runtime."""
