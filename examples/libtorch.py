"""The digits model as a C++ program: export, build with CMake, run, compare with torch. Takes minutes the first time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import torch

import models
from exporters import export_model

base = Path("demo-output/libtorch").absolute()
source, build, inputs, outputs = (base / name for name in ("digits", "build", "inputs", "outputs"))
model = models.load("digits")

export_model(model, "libtorch", path=source, options={"namespace": "digits"})
prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
subprocess.run(["cmake", "-S", source, "-B", build, prefix], check=True)
subprocess.run(["cmake", "--build", build], check=True)

images = torch.rand(5, 1, 8, 8)
inputs.mkdir(exist_ok=True)
np.save(inputs / "image.npy", images.numpy())
subprocess.run([build / "run", source / "model.pt2", inputs, outputs], check=True)

found = torch.from_numpy(np.load(outputs / "output.npy"))
with torch.no_grad():
    print("largest difference:", (found - model(images)).abs().max().item())
