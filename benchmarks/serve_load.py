"""Requests from several clients at once, over HTTP and by handle: none may be lost, none may get another's answer.

Each request carries its number in its input; its answer is compared with what the torch model says for that number. The
model's arithmetic is on small integers, so the answer is the same in any batch, bit for bit.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

WIDTH = 16


class Numbered(torch.nn.Module):
    """Scores of a request, and the request's number again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, WIDTH)
        weights = torch.arange(WIDTH * WIDTH).reshape(WIDTH, WIDTH) * 7 % 31 - 15
        self.layer.load_state_dict({"weight": weights.float(), "bias": torch.arange(WIDTH).float()})

    def forward(self, x: torch.Tensor, number: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scores": torch.relu(self.layer(x)), "again": number * 1}

    def example_inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        return request(0, 2)


@dataclass(frozen=True)
class Load:
    """What came of it: how many answers, which requests went wrong and why, and seconds for all."""

    answers: int
    wrong: tuple[str, ...]
    seconds: float


def request(number: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The input of a request: its number in bits, and as it is, in each of its rows."""
    numbers = torch.full((rows,), number, dtype=torch.int64)
    bits = (numbers[:, None] >> torch.arange(WIDTH)) & 1
    bits[:, -1] = torch.arange(rows)  # rows of one request differ
    return bits.float(), numbers


def rows_of(number: int) -> int:
    """How many rows a request has."""
    return 1 + number % 3


def export(folder: Path) -> Path:
    """The model as a file."""
    from exporters import export_model

    return export_model(Numbered(), "onnx").save(folder / "numbered.onnx")


def run_load(calls: Sequence[Callable[[dict[str, Any]], dict[str, Any]]], requests: int) -> Load:
    """Send requests from as many threads as there are calls, each its share; then judge every answer."""
    answers: list[dict[str, Any] | BaseException | None] = [None] * requests

    def work(client: int) -> None:
        for number in range(client, requests, len(calls)):
            x, numbers = request(number, rows_of(number))
            try:
                answers[number] = calls[client]({"x": x.numpy(), "number": numbers.numpy()})
            except Exception as error:  # noqa: BLE001 - an answer that is an error is what this looks for
                answers[number] = error

    threads = [threading.Thread(target=work, args=(client,)) for client in range(len(calls))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    model = Numbered().eval()
    wrong = [text for number, answer in enumerate(answers) if (text := _judge(model, number, answer))]
    return Load(sum(isinstance(answer, dict) for answer in answers), tuple(wrong), seconds)


def _judge(model: Numbered, number: int, answer: Any) -> str:
    if not isinstance(answer, dict):
        return f"request {number}: {answer!r:.200}"
    with torch.no_grad():
        expected = model(*request(number, rows_of(number)))
    for name, value in expected.items():
        if not np.array_equal(value.numpy(), answer.get(name, None)):
            return f"request {number}: {name} is another's"
    return ""


def main() -> None:
    """Serve, send, judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--port", type=int, default=8765)
    arguments = parser.parse_args()
    from interop.integrations.ray_serve import deployment, running
    from interop.integrations.serving import ServingClient

    with tempfile.TemporaryDirectory() as folder:
        application = deployment(export(Path(folder)), num_replicas=arguments.replicas, options={"threads": 1})
        with running(application, cpus=arguments.replicas + 1, port=arguments.port) as handle:
            client = ServingClient(f"127.0.0.1:{arguments.port}", "numbered", protocol="rest", timeout=60)
            calls = [client.run, lambda inputs: handle.predict.remote(inputs).result(timeout_s=60)]
            load = run_load([calls[n % 2] for n in range(arguments.clients)], arguments.requests)
    print(
        f"{arguments.requests} requests from {arguments.clients} clients, half over HTTP: {load.answers} answers, "
        f"{len(load.wrong)} wrong, {arguments.requests / load.seconds:.0f} a second"
    )
    for text in load.wrong[:10]:
        print(text)
    if load.wrong or load.answers != arguments.requests:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
