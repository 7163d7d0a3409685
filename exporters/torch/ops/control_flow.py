"""If, Loop and Scan."""

from __future__ import annotations

import torch
from torch._higher_order_ops.scan import scan as scan_operator
from torch._higher_order_ops.while_loop import while_loop

from exporters.torch._table import lower
from exporters.torch._values import RefusedError, numbers, torch_dtype


@lower("If")
def if_(cond, *, then_branch, else_branch):
    """Plain Python; while torch.export traces a condition that only the run knows, ``torch.cond``."""
    if not _is_traced(cond):
        return then_branch() if bool(cond) else else_branch()
    operands = tuple(then_branch.captured)
    tensors = tuple(value for value in operands if isinstance(value, torch.Tensor))
    places = [index for index, value in enumerate(operands) if isinstance(value, torch.Tensor)]

    def called(branch):
        def run(*given):
            captured = list(operands)
            for index, value in zip(places, given):
                captured[index] = value
            # A branch may not give back what it was given.
            return tuple(result.clone() for result in branch.module(*captured))

        return run

    return torch.cond(cond.reshape([]), called(then_branch), called(else_branch), tensors)


def _is_traced(cond):
    return isinstance(cond, torch.Tensor) and torch.compiler.is_exporting()


@lower("Loop")
def loop(M=None, cond=None, *v_initial, body):
    count = body.inputs - 2
    states = [*v_initial, *[None] * (count - len(v_initial))]  # optionals without a value at the end were left out
    if len(body.dtypes) == count + 1 and (_is_traced(M) or _is_traced(cond)):
        return _while_loop(M, cond, states, body)
    limit = None if M is None else numbers(M)[0]
    goes_on, iteration = True if cond is None else bool(cond), 0
    rows = []
    while goes_on and (limit is None or iteration < limit):
        going, *values = body(torch.tensor(iteration), torch.tensor(True), *states)
        states = values[:count]
        rows.append(values[count:])
        goes_on, iteration = bool(going), iteration + 1
    return (*states, *_stacks(rows, body.dtypes[count + 1 :]))


def _while_loop(M, cond, states, body):
    """The loop as an operator, for torch.export; its states keep their shapes."""
    most = torch.tensor(torch.iinfo(torch.int64).max) if M is None else M.reshape([]).clone()
    start = torch.tensor(True) if cond is None else cond.reshape([])

    def goes_on(iteration, most, going, *states):
        return going & (iteration < most)

    def step(iteration, most, going, *states):
        still, *values = body(iteration, going, *states)
        return iteration + 1, most.clone(), still.reshape([]).clone(), *(value.clone() for value in values)

    carried = (torch.zeros([], dtype=torch.int64), most, start.clone(), *states)
    return while_loop(goes_on, step, carried)[3:]


def _stacks(rows, dtypes):
    if not rows:
        return [torch.empty([0], dtype=torch.float32 if dtype is None else torch_dtype(dtype)) for dtype in dtypes]
    return [torch.stack(column) for column in zip(*rows)]


@lower("Scan", since=9)
def scan(
    *initial_state_and_scan_inputs,
    body,
    num_scan_inputs,
    scan_input_axes=None,
    scan_input_directions=None,
    scan_output_axes=None,
    scan_output_directions=None,
):
    count = len(initial_state_and_scan_inputs) - num_scan_inputs
    states, given = list(initial_state_and_scan_inputs[:count]), initial_state_and_scan_inputs[count:]
    axes = scan_input_axes or [0] * num_scan_inputs
    directions = scan_input_directions or [0] * num_scan_inputs
    sources = [source.movedim(axis, 0) for source, axis in zip(given, axes)]
    sources = [source.flip(0) if backwards else source for source, backwards in zip(sources, directions)]
    states, stacks = _scanned(states, sources, body)
    results = len(body.dtypes) - count
    directions, axes = scan_output_directions or [0] * results, scan_output_axes or [0] * results
    stacks = [stack.flip(0) if backwards else stack for stack, backwards in zip(stacks, directions)]
    return (*states, *(stack.movedim(0, axis) for stack, axis in zip(stacks, axes)))


def _scanned(states, sources, body):
    """The last states, and what each step gives, stacked; an operator where torch.export does not know the steps."""
    count = len(states)
    if isinstance(sources[0].shape[0], torch.SymInt):

        def step(carry, items):
            values = [value.clone() for value in body(*carry, *items)]
            return tuple(values[:count]), tuple(values[count:])

        return scan_operator(step, tuple(states), tuple(sources))
    rows = []
    for items in zip(*(source.unbind(0) for source in sources)):
        values = body(*states, *items)
        states = list(values[:count])
        rows.append(values[count:])
    if not rows:
        raise RefusedError("a Scan over no elements")
    return states, [torch.stack(column) for column in zip(*rows)]
