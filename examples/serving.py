"""The digits model for TensorFlow Serving: its files, and a client. TENSORFLOW_SERVING_ADDRESS=host:8500 calls a server."""

from __future__ import annotations

import os
from pathlib import Path

import torch

import interop
import models
from exporters import export_model
from interop.integrations.serving import ServedModel, ServingClient, write_models_config

base = Path("demo-output/models/digits").absolute()
model = models.load("digits")

export_model(model, "tensorflow", path=base, options={"version": 1, "warmup": True})
config = write_models_config(base.parent / "models.config", [ServedModel("digits", base)])
print(config.read_text())

address = os.environ.get("TENSORFLOW_SERVING_ADDRESS")
if address is None:
    print(f"tensorflow_model_server --port=8500 --model_config_file={config}")
    print("then: TENSORFLOW_SERVING_ADDRESS=localhost:8500 python -m examples.serving")
else:
    with ServingClient(address, "digits", exported=base) as client:
        print(client(torch.rand(5, 1, 8, 8)).argmax(dim=1))
        print(interop.check(model, client))
