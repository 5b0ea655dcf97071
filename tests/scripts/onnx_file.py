"""A tiny BERT classifier and its int8 ONNX file, named as torch and onnxruntime name them."""

import torch
from onnx import helper, numpy_helper, save
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

EMBEDDINGS = "bert.embeddings.{}.weight"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "film", "of", "rose", "after", "and", "a"]


def model():
    """Return a classifier without layers: embeddings, pooler and head."""
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=0, num_attention_heads=2,
        max_position_embeddings=64, num_labels=16, initializer_range=0.5,
    )  # fmt: skip
    bert = BertForSequenceClassification(config).eval()
    for parameter in bert.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return bert


def quantized(name, weight, columns, unsigned):
    """Return the three initializers of a weight: integers, scales and zero points."""
    dims = 0 if columns else None
    scale = (weight.amax(dims) - weight.amin(dims)) / 250
    zero = (-weight.amin(dims) / scale).round() - (0 if unsigned else 128)
    integers = torch.uint8 if unsigned else torch.int8
    stored = ((weight / scale).round() + zero).to(integers)
    parts = {"quantized": stored, "scale": scale, "zero_point": zero.to(integers)}
    return {f"{name}_{part}": value for part, value in parts.items()}


def write(file, bert, pooled="Tanh"):
    """Write the file and, beside it, the config and the tokenizer."""
    weights = {name: value.detach() for name, value in bert.state_dict().items()}
    tensors = {n: v for n, v in weights.items() if "LayerNorm" in n or n.endswith("bias")}
    for part in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        name = EMBEDDINGS.format(part)
        tensors |= quantized(name, weights[name], columns=False, unsigned=True)
    pooler, head = "onnx::MatMul_7", "classifier.weight"  # the first has lost its name
    tensors |= quantized(pooler, weights["bert.pooler.dense.weight"].T, True, False)
    tensors |= quantized(head, weights["classifier.weight"].T, False, False)

    def node(kind, inputs, outputs, name="", **attributes):
        return helper.make_node(kind, inputs.split(), outputs.split(), name=name, **attributes)

    def weight(name):
        return " ".join(f"{name}_{part}" for part in ("quantized", "scale", "zero_point"))

    def read(name, kind, index, out):
        integers, rest = weight(EMBEDDINGS.format(name)).split(maxsplit=1)
        return (
            node(kind, f"{integers} {index}", f"{out}_q"),
            node("DequantizeLinear", f"{out}_q {rest}", out),
        )

    norm = "bert.embeddings.LayerNorm"
    nodes = (
        node("Constant", "", "zero", value_ints=[0]),
        node("Constant", "", "one", value_ints=[1]),
        node("Shape", "input_ids", "length", start=1),
        *read("word_embeddings", "Gather", "input_ids", "words"),
        *read("token_type_embeddings", "Gather", "token_type_ids", "types"),
        *read("position_embeddings", "Slice", "zero length", "places"),
        node("Sum", "words types places", "sum"),
        node("LayerNormalization", f"sum {norm}.weight {norm}.bias", "states", epsilon=1e-12),
        node("Slice", "states zero one one", "first"),
        node("Squeeze", "first one", "cls"),
        node("DynamicQuantizeLinear", "cls", "cls_q cls_scale cls_zero"),
        node(
            "MatMulInteger", f"cls_q {pooler}_quantized cls_zero {pooler}_zero_point", "product",
            "/bert/pooler/dense/Gemm_MatMul_quant",
        ),
        node("Cast", "product", "float", to=1),
        node("Mul", f"cls_scale {pooler}_scale", "scales"),
        node("Mul", "float scales", "scaled"),
        node("Add", "scaled bert.pooler.dense.bias", "dense"),
        node(pooled, "dense", "pooled"),
        node("DequantizeLinear", weight(head), "matrix"),
        node("MatMul", "pooled matrix", "scores", "/classifier/MatMul"),
        node("Add", "scores classifier.bias", "logits"),
    )  # fmt: skip
    port = helper.make_tensor_value_info
    inputs = [port(name, 7, ["N", "T"]) for name in ("input_ids", "token_type_ids")]
    stored = [numpy_helper.from_array(value.numpy(), name) for name, value in tensors.items()]
    graph = helper.make_graph(nodes, "bert", inputs, [port("logits", 1, ["N", 16])], stored)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), file)
    bert.config.architectures = ["BertForSequenceClassification"]
    bert.config.save_pretrained(file.parent)
    BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)}).save_pretrained(file.parent)
