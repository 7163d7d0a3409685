"""The ONNX backend suite through the TensorFlow exporter: convert, save, reload, run, compare."""
