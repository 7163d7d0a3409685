"""The digits model on Ray Serve, asked over HTTP, and over a Ray dataset."""

from __future__ import annotations

import numpy as np
import ray

import interop
import models
from exporters import export_model
from interop.integrations.ray import cluster
from interop.integrations.ray_data import map_batches
from interop.integrations.ray_serve import deployment, running
from interop.integrations.serving import ServingClient
from models.digits import test_set

if __name__ == "__main__":
    model = models.load("digits")
    path = export_model(model, "onnx").save("demo-output/digits.onnx")
    images = test_set()[0][:5]
    with cluster(ray, None, 2):
        with running(deployment(path), port=8123) as handle:
            client = ServingClient("localhost:8123", "digits", protocol="rest", timeout=60)
            print("over HTTP  ", client(images).argmax(dim=1).tolist())
            answer = handle.predict.remote({"image": images.numpy()}).result()
            print("by handle  ", answer["output"].argmax(axis=1).tolist())
            print(interop.check(model, client).summary)
        ray.data.DataContext.get_current().enable_progress_bars = False
        dataset = ray.data.from_numpy(images.numpy())
        scores = map_batches(dataset, path, columns={"image": "data"}).take_all()
        print("over a dataset", np.argmax([row["output"] for row in scores], axis=1).tolist())
