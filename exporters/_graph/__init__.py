"""What the formats that lower an ONNX graph share: the operator table, function bodies, opset upgrades, nodes."""
