"""Makes candidates: the same model in other precisions and for other engines.

Read in this order:

- `candidates.py`: the table of candidates, each with its maker.
- `stage.py`: one candidate from its parent. A maker writes it, `proof.py` runs it on real text, the store publishes it.
- `settings.py`: what a maker is given, and what it gives back.
- The makers: `plain.py` (full precision), `half/fp16.py`, `int8/dynamic.py`, `int8/static.py`, `int8/weights.py`,
  `int8/mixed.py` and `tensorrt/qdq.py`. `optimize.py`, with `norms.py`, makes the fused graph that some
  of them start from.
- Graphs that skip padding: `packed_tokens.py` for ONNX Runtime, `int8/openvino_packed.py`; both are tried on
  `padded_calls.py`.
- What makers of calibrated INT8 share: `linear_layers.py` (what can be rounded), `activations.py` (what real text makes
  of it), `ranges.py` (where to clip).
- `int8/search.py`: which layers must stay in float. `int8/encodings.py`: how each of the others is rounded.
- Receipts, which count what an engine really runs: `int8/integer_receipt.py`, `tensorrt/engine_receipt.py`.
- `tensorrt/engine.py`: the engine of a finished ONNX candidate.
- `float_bound.py`, `int8/integer_bound.py`: reasons to skip a candidate before it is made.
"""
