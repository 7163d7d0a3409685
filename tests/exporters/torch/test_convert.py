"""What becomes of ONNX graphs that torch did not write; ONNX Runtime is the witness."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import interop
from exporters import OptionsError, TranslationError, UnsupportedOperatorError, WriteError, export_model
from tests.exporters.torch._graphs import check_model, model_of, node_model, rebuilt, runtime_outputs

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


FLATTEN = """
    flatten (float[n, c, h] x) => (float[n, m] y) {
        shape = Shape(x)
        zero = Constant <value: tensor = int64[1] {0}> ()
        first = Gather <axis: int = 0> (shape, zero)
        rest = Constant <value: tensor = int64[1] {-1}> ()
        target = Concat <axis: int = 0> (first, rest)
        y = Reshape (x, target)
    }
"""


def test_shape_arithmetic_keeps_dims_symbolic_through_torch_export():
    module = check_model(model_of(FLATTEN), [floats(2, 3, 4)], [floats(5, 1, 2)])
    program = torch.export.export(module, (torch.zeros(3, 4, 5),), dynamic_shapes=({0: torch.export.Dim("n")},))
    assert program.module()(torch.zeros(7, 4, 5)).shape == (7, 20)


def test_saved_file_has_a_dim_for_each_symbol(tmp_path):
    exported = export_model(model_of(FLATTEN), "torch", path=tmp_path / "flatten.pt2")
    assert exported.parity.passed
    runtime = interop.load(tmp_path / "flatten.pt2")
    assert len(runtime.signature.symbols) == 3
    assert runtime(torch.zeros(9, 2, 6)).shape == (9, 12)


def test_weights_without_torch_s_names_become_layers():
    model = model_of(
        """
        net (float[n, 3, 8, 8] x) => (float[n, 4] y) {
            a = Conv <pads: ints = [1, 1, 1, 1]> (x, w, b)
            s = BatchNormalization (a, scale, shift, mean, var)
            p = GlobalAveragePool (s)
            f = Flatten (p)
            y = Gemm <transB: int = 1> (f, head, bias)
        }
        """,
        {
            "w": floats(5, 3, 3, 3),
            "b": floats(5),
            "scale": floats(5),
            "shift": floats(5),
            "mean": floats(5),
            "var": floats(5) ** 2 + 1,
            "head": floats(4, 5),
            "bias": floats(4),
        },
    )
    module = check_model(model, [floats(2, 3, 8, 8)])
    kinds = [type(layer) for layer in module.modules()]
    assert {nn.Conv2d, nn.BatchNorm2d, nn.AdaptiveAvgPool2d, nn.Linear} <= set(kinds)
    assert module.conv.weight.requires_grad
    assert not isinstance(module.batchnormalization.running_mean, nn.Parameter)


@pytest.mark.parametrize("pads", [[0, 1, 2, 0], [1, 1, 1, 1]])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "VALID"])
def test_conv_is_right_with_every_padding(pads, auto_pad):
    attributes = {"auto_pad": auto_pad} | ({"pads": pads} if auto_pad == "NOTSET" else {})
    attributes |= {"strides": [2, 1], "kernel_shape": [3, 2]}
    check_model(
        node_model("Conv", [x := floats(2, 4, 9, 7), w := floats(6, 4, 3, 2)], ["f4"], attributes), [x, w], atol=1e-4
    )


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layer_from_elsewhere_becomes_torch_s(operator, gates, direction):
    directions = 2 if direction == "bidirectional" else 1
    weights = {
        "w": floats(directions, gates * 6, 5),
        "r": floats(directions, gates * 6, 6),
        "b": floats(directions, 2 * gates * 6),
    }
    reset = "linear_before_reset: int = 1," if operator == "GRU" else ""
    model = model_of(
        f"""
        net (float[t, n, 5] x) => (float[t, d, n, 6] y, float[d, n, 6] h) {{
            y, h = {operator} <hidden_size: int = 6, {reset} direction: string = "{direction}"> (x, w, r, b)
        }}
        """,
        weights,
    )
    module = check_model(model, [floats(7, 2, 5)], [floats(3, 4, 5)])
    layer = module.get_submodule(operator.lower())
    assert type(layer) is getattr(nn, operator)
    module(torch.zeros(2, 1, 5))[0].sum().backward()
    assert layer.weight_hh_l0.grad is not None


def test_recurrent_layer_with_what_torch_lacks_is_a_loop_of_its_own():
    model = node_model(
        "LSTM",
        [x := floats(4, 3, 5), w := floats(1, 24, 5), r := floats(1, 24, 6), b := floats(1, 48)],
        ["f4", "f4", "f4"],
        {"hidden_size": 6, "activations": ["HardSigmoid", "Softsign", "Tanh"], "clip": 0.5},
    )
    check_model(model, [x, w, r, b])


@pytest.mark.parametrize("last", ["y = Add (p, b)", "y = Add (b, p)", "y = Identity (p)"])
def test_product_with_a_matrix_becomes_a_linear_layer(last):
    model = model_of(
        f"net (float[n, t, 4] x) => (float[n, t, 3] y) {{ p = MatMul (x, w) {last} }}",
        {"w": floats(4, 3), "b": floats(3)},
    )
    module = check_model(model, [floats(2, 5, 4)])
    (layer,) = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    assert layer.weight.shape == (3, 4)
    assert (layer.bias is None) == ("Add" not in last)


def test_gemm_of_either_layout_becomes_a_linear_layer():
    model = model_of(
        """
        net (float[n, 4] x) => (float[n, 3] y, float[n, 3] z) {
            y = Gemm (x, w, b)
            z = Gemm <transB: int = 1> (x, v, b)
        }
        """,
        {"w": floats(4, 3), "v": floats(3, 4), "b": floats(3)},
    )
    module = check_model(model, [floats(2, 4)])
    assert [type(layer) for layer in module.children()] == [nn.Linear, nn.Linear]


def test_matrix_that_two_nodes_read_stays_one_parameter():
    model = model_of(
        "net (float[n, 3] x) => (float[n, 3] y) { a = MatMul (x, w) y = MatMul (a, w) }", {"w": floats(3, 3)}
    )
    module = check_model(model, [floats(2, 3)])
    assert list(dict(module.named_parameters())) == ["w"]


def test_embedding_and_prelu_and_norms_hold_their_weights():
    model = model_of(
        """
        net (int64[n, t] x) => (float[n, t, 6] y) {
            e = Gather <axis: int = 0> (table, x)
            l = LayerNormalization <axis: int = -1, epsilon: float = 0.001> (e, scale, shift)
            y = PRelu (l, slope)
        }
        """,
        {"table": floats(9, 6), "scale": floats(6), "shift": floats(6), "slope": floats(1)},
    )
    module = check_model(model, [RNG.integers(-9, 9, (2, 3)) % 9])
    kinds = {type(layer) for layer in module.modules()}
    assert {nn.Embedding, nn.LayerNorm, nn.PReLU} <= kinds
    assert module.layernormalization.eps == 0.001


IF = """
    branch (float[n] x, bool c) => (float[n] y) {
        y = If (c) <
            then_branch: graph = a () => (float[n] t) { t = Add (x, x) },
            else_branch: graph = b () => (float[n] e) { e = Neg (x) }
        >
    }
"""


def test_if_takes_the_branch_of_the_run():
    module = check_model(model_of(IF), [floats(3), np.array(True)], [floats(2), np.array(False)])
    program = torch.export.export(module, (torch.ones(3), torch.tensor(True)))
    torch.testing.assert_close(program.module()(torch.ones(3), torch.tensor(False)), -torch.ones(3))


LOOP = """
    loop (float[n] x, int64 count) => (float[n] last, float[m, n] steps) {
        yes = Constant <value: tensor = bool {1}> ()
        last, steps = Loop (count, yes, x) <
            body: graph = body (int64 i, bool goes, float[n] s) => (bool on, float[n] next, float[n] seen) {
                f = Cast <to: int = 1> (i)
                next = Add (s, f)
                limit = Constant <value: tensor = float {6.0}> ()
                top = ReduceMax <keepdims: int = 0> (next)
                on = Less (top, limit)
                seen = Mul (next, x)
            }
        >
    }
"""


def test_loop_counts_stops_and_collects():
    check_model(
        model_of(LOOP),
        [np.zeros(2, np.float32), np.array(3)],
        [np.ones(2, np.float32), np.array(99)],
        [np.ones(2, np.float32), np.array(1)],
    )


def test_scan_goes_backwards_and_along_other_axes():
    model = model_of(
        """
        scan (float[2] s, float[2, t] x) => (float[2] last, float[2, t] all) {
            last, all = Scan (s, x) <
                num_scan_inputs: int = 1,
                scan_input_axes: ints = [1],
                scan_input_directions: ints = [1],
                scan_output_axes: ints = [1],
                body: graph = body (float[2] a, float[2] b) => (float[2] c, float[2] d) {
                    c = Add (a, b)
                    d = Identity (c)
                }
            >
        }
        """
    )
    check_model(model, [floats(2), floats(2, 4)])


def test_sequences_are_lists():
    model = model_of(
        """
        seq (float[n, 2] x) => (float[n, 2] y, int64 count) {
            parts = SplitToSequence <axis: int = 0> (x)
            zero = Constant <value: tensor = int64 {0}> ()
            more = SequenceInsert (parts, x, zero)
            y = ConcatFromSequence <axis: int = 0> (more)
            count = SequenceLength (more)
        }
        """
    )
    check_model(model, [floats(3, 2)])


def test_strings_are_arrays():
    model = model_of(
        """
        text (string[n] x) => (string[n] y, bool[n] same) {
            y = StringConcat (x, x)
            same = Equal (x, word)
        }
        """
    )
    model.graph.initializer.append(onnx.helper.make_tensor("word", onnx.TensorProto.STRING, [1], [b"b"]))
    y, same = rebuilt(model)(np.array(["a", "b"], object))
    assert y.tolist() == ["aa", "bb"]
    assert same.tolist() == [False, True]


def test_function_of_the_model_s_own_is_called_with_its_attributes():
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        net (float[n] x) => (float[n] y) { y = own.scaled <by: float = 3.0> (x) }
        <opset_import: ["" : 21], domain: "own">
        scaled <by> (x) => (y) { f = Constant <value_float: float = @by> () y = Mul (x, f) }
        """
    )
    check_model(model, [floats(4)])


def test_unsupported_operators_are_all_named_before_any_work():
    head = '<ir_version: 10, opset_import: ["" : 21, "odd" : 1]>'
    text = f"{head} net (float[n] x) => (float[n] y) {{ a = odd.One (x) y = odd.Two (a) }}"
    with pytest.raises(UnsupportedOperatorError, match=r"odd::One(.|\n)*odd::Two"):
        rebuilt(onnx.parser.parse_model(text))


def test_save_refuses_another_suffix_and_leaves_nothing(tmp_path):
    exported = export_model(model_of(FLATTEN), "torch", verify=False)
    with pytest.raises(WriteError, match=r"\.pt2"):
        exported.save(tmp_path / "flatten.pth")
    assert list(tmp_path.iterdir()) == []


def test_save_reads_what_it_wrote(tmp_path, monkeypatch):
    exported = export_model(model_of(FLATTEN), "torch", verify=False)
    monkeypatch.setattr(torch.export, "save", lambda program, path, **_: path.write_bytes(b"PK\x03\x04 and no more"))
    with pytest.raises(TranslationError, match="cannot read again"):
        exported.save(tmp_path / "flatten.pt2")
    assert list(tmp_path.iterdir()) == []


def test_save_says_when_torch_export_cannot_follow(tmp_path):
    exported = export_model(model_of(LOOP), "torch", verify=False)
    with pytest.raises(TranslationError, match="the module itself works"):
        exported.save(tmp_path / "loop.pt2")
    assert list(tmp_path.iterdir()) == []


def test_save_refuses_to_fix_a_symbol_to_a_number(tmp_path):
    model = model_of(
        """
        rows (float[t, 2] x) => (float[t, 2] y) {
            parts = SplitToSequence <axis: int = 0> (x)
            y = ConcatFromSequence <axis: int = 0> (parts)
        }
        """
    )
    exported = export_model(model, "torch")
    with pytest.raises(TranslationError, match=r"\bt\b"):
        exported.save(tmp_path / "rows.pt2")


def test_saved_scan_takes_any_number_of_steps(tmp_path):
    model = model_of(
        """
        scan (float[t, 2] x) => (float[2] last, float[t, 2] all) {
            zero = Constant <value: tensor = float[2] {0.0, 0.0}> ()
            last, all = Scan (zero, x) <
                num_scan_inputs: int = 1,
                scan_output_directions: ints = [1],
                body: graph = body (float[2] a, float[2] b) => (float[2] c, float[2] d) {
                    c = Add (a, b)
                    d = Mul (c, b)
                }
            >
        }
        """
    )
    export_model(model, "torch", path=tmp_path / "scan.pt2")
    interop.check(model, tmp_path / "scan.pt2").raise_for_failure()


def test_saved_loop_counts_what_the_run_says(tmp_path):
    model = model_of(
        """
        loop (float[n] x, int64 count) => (float[n] last) {
            yes = Constant <value: tensor = bool {1}> ()
            last = Loop (count, yes, x) <
                body: graph = body (int64 i, bool goes, float[n] s) => (bool on, float[n] next) {
                    f = Cast <to: int = 1> (i)
                    next = Add (s, f)
                    limit = Constant <value: tensor = float {6.0}> ()
                    top = ReduceMax <keepdims: int = 0> (next)
                    on = Less (top, limit)
                }
            >
        }
        """
    )
    export_model(model, "torch", path=tmp_path / "loop.pt2")
    runtime = interop.load(tmp_path / "loop.pt2")
    for x, count in ((floats(2), 3), (floats(4), 99), (floats(1), 0)):
        (expected,) = runtime_outputs(model, [x, np.array(count)])
        np.testing.assert_allclose(runtime(x, np.array(count)), expected, rtol=1e-6)


def test_source_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(OptionsError, match="onnx"):
        export_model(tmp_path / "model", "torch")


def test_module_moves_and_copies_with_its_constants():
    module = rebuilt(
        model_of("net (float[n] x) => (float[n] y) { c = Constant <value: tensor = float {0.5}> () y = Mul (x, c) }")
    )
    assert module.state_dict() == {}
    again = copy.deepcopy(module).double()
    assert again(torch.ones(2, dtype=torch.float64)).dtype == torch.float64
    assert module.to("meta")(torch.ones(2, device="meta")).device.type == "meta"


class Nested(nn.Module):
    def forward(self, batch, scale=2.0, *, more):
        return {"sum": batch["a"] + more[0], "all": [batch["b"] * scale, (more[1] * 2,)]}


def test_nested_arguments_and_fixed_ones_are_as_they_were(tmp_path):
    model, x = Nested(), torch.arange(6.0).reshape(3, 2)
    kwargs = {"more": (x + 1, x - 1)}
    exported = export_model(
        model, "torch", inputs=({"a": x, "b": x + 2}, 3.0), kwargs=kwargs, path=tmp_path / "nested.pt2"
    )
    expected = model({"a": x, "b": x + 2}, 3.0, **kwargs)
    for again in (exported.artifact.module, exported, interop.load(tmp_path / "nested.pt2")):
        found = again({"a": x, "b": x + 2}, 3.0, **kwargs)
        torch.testing.assert_close(found, expected)
        assert (type(found), type(found["all"]), type(found["all"][1])) == (dict, list, tuple)
    runtime = interop.load(tmp_path / "nested.pt2")
    assert runtime.signature.results == exported.signature.results


def test_names_say_where_each_weight_stands():
    text = (
        "net (float[n, 2] x) => (float[n, 3] y) { a = Gemm <transB: int = 1> (x, head_w, head_b) y = Mul (a, other) }"
    )
    weights = {"head_w": floats(3, 2), "head_b": floats(3), "other": floats(3)}
    module = rebuilt(model_of(text, weights))
    assert module.meta["names"] == {"head_w": "gemm.weight", "head_b": "gemm.bias", "other": "other"}
    for name, path in module.meta["names"].items():
        np.testing.assert_array_equal(module.get_parameter(path).detach().numpy(), weights[name])


def test_two_exports_of_one_model_share_no_weight():
    model = model_of("net (float[n, 2] x) => (float[n, 2] y) { y = MatMul (x, w) }", {"w": floats(2, 2)})
    one, other = rebuilt(model), rebuilt(model)
    with torch.no_grad():
        next(one.parameters()).zero_()
    assert next(other.parameters()).abs().sum() > 0
    x = floats(3, 2)
    np.testing.assert_allclose(other(torch.from_numpy(x)).detach().numpy(), runtime_outputs(model, [x])[0], rtol=1e-5)


def test_conversion_prints_and_warns_of_nothing(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rebuilt(model_of(LOOP))
    assert capfd.readouterr() == ("", "")
