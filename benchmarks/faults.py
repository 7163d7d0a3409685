"""Faults to plant into an ONNX model: each function changes a model in place and gives the nodes that are then wrong.

A function gets the model and a generator and returns the names of the nodes at which the fault is, or None where the model
has no place for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Nodes = set[str] | None
VISIBLE = 20.0
"""A fault is visible where it moves some output by more than this multiple of the model's float noise."""

FAULTS: dict[str, Callable[[onnx.ModelProto, np.random.Generator], Nodes]] = {}


def fault(function):
    FAULTS[function.__name__] = function
    return function


def pick(rng, items):
    return items[int(rng.integers(len(items)))] if items else None


def nodes_of(model, *kinds):
    return [node for node in model.graph.node if node.op_type in kinds]


def users(model, name):
    return {node.name for node in model.graph.node if name in node.input}


def attribute(node, name):
    return next((item for item in node.attribute if item.name == name), None)


def set_attribute(node, name, value):
    kept = [item for item in node.attribute if item.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def floats(model, least=2, rank=None):
    """Float32 initializers that nodes of the main graph use."""
    found = []
    for tensor in model.graph.initializer:
        size = int(np.prod(tensor.dims))
        fits = tensor.data_type == TensorProto.FLOAT and size >= least and (rank is None or len(tensor.dims) in rank)
        if fits and users(model, tensor.name):
            found.append(tensor)
    return found


def change_weight(model, rng, change, least=2, rank=None):
    tensor = pick(rng, floats(model, least, rank))
    if tensor is None:
        return None
    before = numpy_helper.to_array(tensor)
    after = change(before.copy())
    if after is None or np.array_equal(before, after):
        return None
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(after), tensor.name))
    return users(model, tensor.name)


def float_values(model):
    """Names of the float values that nodes make, by shape inference."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type for value in [*inferred.value_info, *inferred.output]}
    return [
        (position, name)
        for position, node in enumerate(model.graph.node)
        for name in node.output
        if types.get(name) == TensorProto.FLOAT
    ]


def insert_after(model, rng, build):
    """Put nodes behind a float value; ``build(source, target)`` gives them and their constants."""
    place = pick(rng, float_values(model))
    if place is None:
        return None
    position, name = place
    node = model.graph.node[position]
    node.output[list(node.output).index(name)] = f"{name}_before"
    nodes, constants = build(f"{name}_before", name)
    for offset, new in enumerate(nodes):
        new.name = f"fault_{offset}"
        model.graph.node.insert(position + 1 + offset, new)
    model.graph.initializer.extend(constants)
    return {new.name for new in nodes}


def constant(name, value, dtype=np.float32):
    return numpy_helper.from_array(np.array(value, dtype), name)


@fault
def weights_off_by_1e_3(model, rng):
    return change_weight(model, rng, lambda values: values * np.float32(1.001), 4, (2, 3, 4))


@fault
def one_weight_off_by_1e_3(model, rng):
    def change(values):
        values.flat[int(np.abs(values).argmax())] *= np.float32(1.001)
        return values

    return change_weight(model, rng, change, 4, (2, 3, 4))


@fault
def one_weight_off_by_2e_5(model, rng):
    def change(values):
        values.flat[int(rng.integers(values.size))] += np.float32(2e-5)
        return values

    return change_weight(model, rng, change, 4, (2, 3, 4))


@fault
def weights_rounded_to_float16(model, rng):
    return change_weight(model, rng, lambda values: values.astype(np.float16).astype(np.float32), 4, (2, 3, 4))


@fault
def weights_negated(model, rng):
    return change_weight(model, rng, lambda values: -values, 4, (2, 3, 4))


@fault
def weights_transposed(model, rng):
    def change(values):
        square = values.ndim >= 2 and values.shape[-1] == values.shape[-2]
        return np.swapaxes(values, -1, -2) if square else None

    return change_weight(model, rng, change, 4, (2, 4))


@fault
def weight_rows_swapped(model, rng):
    def change(values):
        values[[0, 1]] = values[[1, 0]]
        return values

    return change_weight(model, rng, change, 4, (2, 3, 4))


@fault
def missing_bias(model, rng):
    return change_weight(model, rng, np.zeros_like, 2, (1,))


@fault
def one_bias_off_by_1e_4(model, rng):
    def change(values):
        values.flat[0] += np.float32(1e-4)
        return values

    return change_weight(model, rng, change, 2, (1,))


@fault
def scalar_off_by_1e_3(model, rng):
    """A scale, such as that of an attention."""
    found = [item for item in floats(model, 1) if int(np.prod(item.dims)) == 1]
    tensor = pick(rng, found)
    if tensor is None:
        return None
    values = numpy_helper.to_array(tensor)
    if not np.isfinite(values).all() or not values.any():
        return None
    tensor.CopyFrom(numpy_helper.from_array(values * np.float32(1.001), tensor.name))
    return users(model, tensor.name)


@fault
def epsilon(model, rng):
    node = pick(rng, nodes_of(model, "LayerNormalization", "InstanceNormalization", "BatchNormalization"))
    if node is None:
        return None
    set_attribute(node, "epsilon", 1e-6)
    return {node.name}


@fault
def axis(model, rng):
    node = pick(rng, nodes_of(model, "Softmax", "Concat", "Gather", "LayerNormalization", "ArgMax", "Split"))
    if node is None:
        return None
    own = attribute(node, "axis")
    value = own.i if own is not None else 0
    set_attribute(node, "axis", value - 1 if value != 0 else 1)
    return {node.name}


@fault
def reduced_axes(model, rng):
    node = pick(rng, [node for node in nodes_of(model, "ReduceMean", "ReduceSum") if len(node.input) > 1])
    tensor = node and next((item for item in model.graph.initializer if item.name == node.input[1]), None)
    if tensor is None:
        return None
    name = f"{tensor.name}_other"
    model.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(tensor)[:1] - 1, name))
    node.input[1] = name
    return {node.name}


@fault
def padding_side(model, rng):
    nodes = [
        node
        for node in nodes_of(model, "Conv", "MaxPool")
        if any((attribute(node, "pads") or helper.make_attribute("pads", [0])).ints)
    ]
    node = pick(rng, nodes)
    if node is None:
        return None
    pads = list(attribute(node, "pads").ints)
    half = len(pads) // 2
    set_attribute(node, "pads", [2 * pad for pad in pads[:half]] + [0] * half)
    return {node.name}


@fault
def resize_mode(model, rng):
    node = pick(rng, nodes_of(model, "Resize"))
    if node is None:
        return None
    mode = attribute(node, "mode")
    linear = mode is not None and mode.s == b"linear"
    if linear and rng.integers(2):
        own = attribute(node, "coordinate_transformation_mode")
        corners = own is not None and own.s == b"align_corners"
        set_attribute(node, "coordinate_transformation_mode", "half_pixel" if corners else "align_corners")
    else:
        set_attribute(node, "mode", "nearest" if linear else "linear")
    return {node.name}


@fault
def swapped_inputs(model, rng):
    node = pick(
        rng,
        [
            node
            for node in nodes_of(model, "Sub", "Div", "MatMul", "Concat", "Where", "Less", "LessOrEqual")
            if len(node.input) > 1
        ],
    )
    if node is None or node.input[-1] == node.input[-2]:
        return None
    node.input[len(node.input) - 2], node.input[len(node.input) - 1] = node.input[-1], node.input[-2]
    return {node.name}


@fault
def duplicated_input(model, rng):
    node = pick(rng, nodes_of(model, "Add", "Mul", "Concat"))
    if node is None or node.input[0] == node.input[1]:
        return None
    node.input[1] = node.input[0]
    return {node.name}


@fault
def dropped_relu(model, rng):
    node = pick(rng, nodes_of(model, "Relu", "LeakyRelu", "Gelu", "Tanh", "Sigmoid"))
    if node is None:
        return None
    if node.output[0] in {value.name for value in model.graph.output}:
        node.op_type = "Identity"
        del node.attribute[:]
        return {node.name}
    source, target = node.input[0], node.output[0]
    places = users(model, target)
    model.graph.node.remove(node)
    for other in model.graph.node:
        other.input[:] = [source if name == target else name for name in other.input]
    return places


@fault
def other_activation(model, rng):
    node = pick(rng, nodes_of(model, "Relu", "LeakyRelu", "Tanh", "Sigmoid"))
    if node is None:
        return None
    swapped = {"Relu": "LeakyRelu", "LeakyRelu": "Elu", "Tanh": "Softsign", "Sigmoid": "HardSigmoid"}
    del node.attribute[:]
    node.op_type = swapped[node.op_type]
    return {node.name}


@fault
def gelu_tanh_for_erf(model, rng):
    node = pick(rng, nodes_of(model, "Gelu"))
    if node is None:
        return None
    set_attribute(node, "approximate", "tanh")
    return {node.name}


@fault
def other_arithmetic(model, rng):
    node = pick(rng, nodes_of(model, "Add", "Mul"))
    if node is None:
        return None
    node.op_type = {"Add": "Sub", "Mul": "Div"}[node.op_type]
    return {node.name}


@fault
def other_reduction(model, rng):
    node = pick(rng, nodes_of(model, "ReduceMean", "ReduceSum", "MaxPool"))
    if node is None:
        return None
    if node.op_type == "MaxPool":
        node.op_type = "AveragePool"
        kept = [item for item in node.attribute if item.name not in ("storage_order", "dilations")]
        del node.attribute[:]
        node.attribute.extend(kept)
    else:
        node.op_type = {"ReduceMean": "ReduceMax", "ReduceSum": "ReduceMean"}[node.op_type]
    return {node.name}


@fault
def transposed_dims(model, rng):
    node = pick(rng, [node for node in nodes_of(model, "Transpose") if len(attribute(node, "perm").ints) > 2])
    if node is None:
        return None
    perm = list(attribute(node, "perm").ints)
    perm[-1], perm[-2] = perm[-2], perm[-1]
    set_attribute(node, "perm", perm)
    return {node.name}


@fault
def swapped_outputs(model, rng):
    """Two outputs of one type change places."""
    kinds: dict[bytes, list] = {}
    for value in model.graph.output:
        kinds.setdefault(value.type.SerializeToString(deterministic=True), []).append(value.name)
    names = next((names for names in kinds.values() if len(names) > 1), None)
    if names is None:
        return None
    swap = {names[0]: names[1], names[1]: names[0]}
    for node in model.graph.node:
        node.output[:] = [swap.get(name, name) for name in node.output]
        node.input[:] = [swap.get(name, name) for name in node.input]
    return {node.name for node in model.graph.node if set(node.output) & set(swap)}


@fault
def output_dtype_changed(model, rng):
    value = pick(rng, [value for value in model.graph.output if value.type.tensor_type.elem_type == TensorProto.FLOAT])
    if value is None:
        return None
    name = value.name
    for node in model.graph.node:
        node.output[:] = [f"{name}_before" if made == name else made for made in node.output]
        node.input[:] = [f"{name}_before" if used == name else used for used in node.input]
    model.graph.node.append(helper.make_node("Cast", [f"{name}_before"], [name], name="fault_0", to=TensorProto.DOUBLE))
    value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return {"fault_0"}


@fault
def batch_frozen_by_reshape(model, rng):
    """The batch of an output is what it was in the example."""
    value = pick(
        rng, [value for value in model.graph.output if any(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
    )
    if value is None:
        return None
    dims = value.type.tensor_type.shape.dim
    shape = [2 if position == 0 else -1 if dim.dim_param else dim.dim_value for position, dim in enumerate(dims)]
    if not dims[0].dim_param or shape.count(-1) > 1:
        return None
    name = value.name
    for node in model.graph.node:
        node.output[:] = [f"{name}_before" if made == name else made for made in node.output]
        node.input[:] = [f"{name}_before" if used == name else used for used in node.input]
    model.graph.initializer.append(constant("fault_shape", shape, np.int64))
    model.graph.node.append(helper.make_node("Reshape", [f"{name}_before", "fault_shape"], [name], name="fault_0"))
    return {"fault_0"}


@fault
def clipped(model, rng):
    """A bound that only large values reach."""
    bound = float(rng.uniform(2, 5))
    return insert_after(
        model,
        rng,
        lambda source, target: (
            [helper.make_node("Clip", [source, "fault_low", "fault_high"], [target])],
            [constant("fault_low", -bound), constant("fault_high", bound)],
        ),
    )


@fault
def nan_for_rare_inputs(model, rng):
    return insert_after(
        model,
        rng,
        lambda source, target: (
            [
                helper.make_node("Greater", [source, "fault_limit"], [f"{target}_rare"]),
                helper.make_node("Where", [f"{target}_rare", "fault_nan", source], [target]),
            ],
            [constant("fault_limit", float(rng.uniform(3, 8))), constant("fault_nan", np.nan)],
        ),
    )


@fault
def value_rounded_to_float16(model, rng):
    return insert_after(
        model,
        rng,
        lambda source, target: (
            [
                helper.make_node("Cast", [source], [f"{target}_half"], to=TensorProto.FLOAT16),
                helper.make_node("Cast", [f"{target}_half"], [target], to=TensorProto.FLOAT),
            ],
            [],
        ),
    )


@fault
def value_cast_to_integer(model, rng):
    return insert_after(
        model,
        rng,
        lambda source, target: (
            [
                helper.make_node("Cast", [source], [f"{target}_whole"], to=TensorProto.INT32),
                helper.make_node("Cast", [f"{target}_whole"], [target], to=TensorProto.FLOAT),
            ],
            [],
        ),
    )


@fault
def value_negated(model, rng):
    return insert_after(model, rng, lambda source, target: ([helper.make_node("Neg", [source], [target])], []))


@fault
def value_scaled_by_1e_4(model, rng):
    return insert_after(
        model,
        rng,
        lambda source, target: (
            [helper.make_node("Mul", [source, "fault_scale"], [target])],
            [constant("fault_scale", 1.0001)],
        ),
    )


@fault
def wrong_cast(model, rng):
    node = pick(rng, nodes_of(model, "Cast"))
    if node is None:
        return None
    set_attribute(
        node, "to", TensorProto.FLOAT16 if attribute(node, "to").i == TensorProto.FLOAT else TensorProto.INT32
    )
    return {node.name}


@fault
def gate_order(model, rng):
    """The gates of a recurrent layer in torch's order."""
    makers = {name: node for node in model.graph.node for name in node.output}
    found, wanted = [], [name for node in nodes_of(model, "GRU", "LSTM") for name in node.input[1:4]]
    for _ in range(4):
        made = [makers[name] for name in wanted if name in makers]
        found += [node for node in made if node.op_type == "Concat" and len(node.input) >= 3]
        wanted = [name for node in made for name in node.input]
    node = pick(rng, found)
    if node is None:
        return None
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return {node.name}


@fault
def recurrent_direction(model, rng):
    node = pick(rng, nodes_of(model, "GRU", "LSTM"))
    if node is None:
        return None
    own = attribute(node, "linear_before_reset")
    if own is not None and rng.integers(2):
        set_attribute(node, "linear_before_reset", 1 - own.i)
        return {node.name}
    direction = attribute(node, "direction")
    if direction is not None and direction.s != b"forward":
        return None
    set_attribute(node, "direction", "reverse")
    return {node.name}


@fault
def integer_off_by_one(model, rng):
    """The start of a slice, an index, a part of a shape."""
    places = [
        (node, position)
        for node in nodes_of(model, "Slice", "Gather")
        for position in (1, 2)
        if position < len(node.input) and any(item.name == node.input[position] for item in model.graph.initializer)
    ]
    place = pick(rng, places)
    if place is None:
        return None
    node, position = place
    tensor = next(item for item in model.graph.initializer if item.name == node.input[position])
    if tensor.data_type != TensorProto.INT64:
        return None
    values = numpy_helper.to_array(tensor) + (1 if rng.integers(2) else -1)
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(values), "fault_integers"))
    node.input[position] = "fault_integers"
    return {node.name}
