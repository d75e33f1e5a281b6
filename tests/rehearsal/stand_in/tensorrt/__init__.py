"""TensorRT for rehearsals: the surface that our code uses. A plan holds its ONNX graph, and ONNX Runtime computes it.

The real tensorrt_rtx parses and builds it too: its words and its receipt are the builder's. Work is put on the stream
of the stand-in driver, so that copies, order and CUDA graphs are those of the product's code. TRIMARAN_REHEARSAL names
one fault: null-builder, null-context, build-out-of-memory, refused-graph, slow-build, wrong-numbers; or own-rounding,
which is none: every GPU's numbers differ a little from the CPU's.
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

__version__ = os.environ.get("TRIMARAN_REHEARSAL_TENSORRT", "11.2.1.5")
_HEAD = b"rehearsal plan\n"


def _fault(name):
    return os.environ.get("TRIMARAN_REHEARSAL") == name


def _driver():
    return ctypes.CDLL(os.environ["TRIMARAN_CUDA_DRIVER"])


def _gpu():
    """The GPU whose context is current."""
    name, device = ctypes.create_string_buffer(256), ctypes.c_int()
    _driver().cuCtxGetDevice(ctypes.byref(device))
    _driver().cuDeviceGetName(name, 256, device)
    return name.value.decode()


Severity = enum.Enum("Severity", "INTERNAL_ERROR ERROR WARNING INFO VERBOSE")
TensorIOMode = enum.Enum("TensorIOMode", "NONE INPUT OUTPUT")
ExecutionContextAllocationStrategy = enum.Enum("ExecutionContextAllocationStrategy", "STATIC USER_MANAGED")
ProfilingVerbosity = enum.Enum("ProfilingVerbosity", "NONE DETAILED")
BuilderFlag = enum.Enum("BuilderFlag", "TF32 WEIGHT_STREAMING")
MemoryPoolType = enum.Enum("MemoryPoolType", "WORKSPACE")
LayerInformationFormat = enum.Enum("LayerInformationFormat", "ONELINE")
NetworkDefinitionCreationFlag = enum.IntEnum("NetworkDefinitionCreationFlag", {"STRONGLY_TYPED": 0})


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = Severity


class Logger(ILogger):
    def __init__(self, severity=None):
        pass

    def log(self, severity, message):
        pass


class IProgressMonitor:
    pass


class _Tensor:
    def __init__(self, name):
        self.name = name


class _Network:
    graph = None

    @property
    def num_inputs(self):
        return len(self._inputs())

    def get_input(self, index):
        return _Tensor(self._inputs()[index])

    def _inputs(self):
        return [item.name for item in _session(self.graph).get_inputs()]


class _TimingCache:
    def __init__(self, stored):
        self._stored = bytes(stored)

    def serialize(self):
        return self._stored or b"timed"


class _Config:
    progress_monitor = None

    def __init__(self):
        self.profiles = []

    def clear_flag(self, flag):
        pass

    set_flag = clear_flag

    def set_memory_pool_limit(self, pool, size):
        pass

    def create_timing_cache(self, stored):
        return _TimingCache(stored)

    def set_timing_cache(self, cache, ignore_mismatch):
        return True

    def add_optimization_profile(self, profile):
        self.profiles.append(profile.shapes)
        return len(self.profiles) - 1


class _Profile:
    def __init__(self):
        self.shapes = {}

    def set_shape(self, name, low, typical, high):
        self.shapes[name] = [list(low), list(typical), list(high)]


class Builder:
    def __init__(self, logger):
        if _fault("null-builder"):
            raise TypeError("pybind11::init(): factory function returned nullptr")
        self._logger = logger

    def create_network(self, flags):
        assert flags & 1, "strongly typed"
        return _Network()

    def create_builder_config(self):
        return _Config()

    def create_optimization_profile(self):
        return _Profile()

    def build_serialized_network(self, network, config):
        if _fault("build-out-of-memory"):
            self._logger.log(Severity.WARNING, "Tactic Device request: 9000MB Available: 4000MB.")
            self._logger.log(Severity.ERROR, "Could not find any implementation for node {ForeignNode[a...b]}")
            return None
        monitor = config.progress_monitor
        if monitor:
            monitor.phase_start("Building", None, 1)
        if _fault("slow-build"):
            time.sleep(600)
        if network.real.build(config.profiles) is None:
            return None
        if monitor:
            monitor.step_complete("Building", 0)
            monitor.phase_finish("Building")
        facts = {"profiles": config.profiles, "gpu": _gpu(), "version": __version__}
        return _HEAD + json.dumps(facts).encode() + b"\n" + network.graph


def _passing_on(logger):
    """A logger for the real builder, whose words go to the product's logger."""
    import tensorrt_rtx

    class Passing(tensorrt_rtx.ILogger):
        def __init__(self):
            tensorrt_rtx.ILogger.__init__(self)

        def log(self, severity, message):
            logger.log(Severity[severity.name], message)

    return Passing()


class _Real:
    """The same network in the real tensorrt_rtx: it parses, and its fused layers are the receipt."""

    def __init__(self, logger):
        import tensorrt_rtx

        self.trt, self.logger = tensorrt_rtx, _passing_on(logger)
        self.builder = tensorrt_rtx.Builder(self.logger)
        self.network = self.builder.create_network(0)
        self.parser = tensorrt_rtx.OnnxParser(self.network, self.logger)

    def build(self, profiles):
        config = self.builder.create_builder_config()
        config.profiling_verbosity = self.trt.ProfilingVerbosity.DETAILED
        config.num_compute_capabilities = 1
        config.set_compute_capability(self.trt.ComputeCapability.SM86, 0)
        for shapes in profiles:
            profile = self.builder.create_optimization_profile()
            for name, ranges in shapes.items():
                profile.set_shape(name, *map(tuple, ranges))
            config.add_optimization_profile(profile)
        return self.builder.build_serialized_network(self.network, config)


class OnnxParser:
    def __init__(self, network, logger):
        self._network = network
        network.real = _Real(logger)
        self._real = network.real.parser

    def parse_from_file(self, path):
        self._network.graph = Path(path).read_bytes()
        if _fault("refused-graph"):
            return self._real.parse(self._network.graph[:-100])
        return self._real.parse_from_file(path)

    @property
    def num_errors(self):
        return self._real.num_errors

    def get_error(self, index):
        return self._real.get_error(index)


class Runtime:
    def __init__(self, logger):
        pass

    def deserialize_cuda_engine(self, plan):
        plan = bytes(plan)
        if not plan.startswith(_HEAD):
            return None
        facts, graph = plan[len(_HEAD) :].split(b"\n", 1)
        facts = json.loads(facts)
        return _Engine(facts, graph) if (facts["gpu"], facts["version"]) == (_gpu(), __version__) else None


def _session(graph):
    """ONNX Runtime; for BF16, which its CPU kernels lack, OpenVINO in float32."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(graph)
        try:
            return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
            return _OpenVino(str(path))


class _OpenVino:
    def __init__(self, path):
        import onnx

        # oneDNN would take instructions that some machines advertise and do not execute.
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
        import openvino

        graph = onnx.load(path).graph
        self._inputs, self._outputs = map(self._described, (graph.input, graph.output))
        self._model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    @staticmethod
    def _described(values):
        import onnx

        types = {onnx.TensorProto.INT64: "tensor(int64)", onnx.TensorProto.FLOAT: "tensor(float)"}
        return [
            SimpleNamespace(
                name=value.name,
                type=types[value.type.tensor_type.elem_type],
                shape=[dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim],
            )
            for value in values
        ]

    def get_inputs(self):
        return self._inputs

    def get_outputs(self):
        return self._outputs

    def run(self, names, inputs):
        results = self._model(inputs)
        return [results[name] for name in names]


_TYPES = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(float16)": np.float16}


def nptype(dtype):
    return dtype


class _Engine:
    streamable_weights_size = 0
    device_memory_size_v2 = 64

    def __init__(self, facts, graph):
        self.session = _session(graph)
        self._profiles = facts["profiles"]
        self.inputs = {item.name: item for item in self.session.get_inputs()}
        self.outputs = {item.name: item for item in self.session.get_outputs()}
        self._names = [*self.inputs, *self.outputs]
        self.num_io_tensors = len(self._names)
        self.num_optimization_profiles = len(self._profiles)

    def get_tensor_name(self, index):
        return self._names[index]

    def get_tensor_mode(self, name):
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name):
        return _TYPES[(self.inputs | self.outputs)[name].type]

    def get_tensor_profile_shape(self, name, profile):
        return [tuple(shape) for shape in self._profiles[profile][name]]

    def create_execution_context(self, strategy):
        return None if _fault("null-context") else _Context(self)

    def create_engine_inspector(self):
        return self

    def get_engine_information(self, form):
        return ""


def _as_a_gpu(result):
    if _fault("wrong-numbers"):
        return -result[..., ::-1]
    if _fault("own-rounding"):
        return result + 0.01 * np.cos(np.arange(result.size)).reshape(result.shape)
    return result


class _Context:
    def __init__(self, engine):
        self._engine = engine
        self._sizes = {}
        self._addresses = {}
        self._work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._compute)

    def set_device_memory(self, address, size):
        pass

    def set_optimization_profile_async(self, profile, stream):
        return True

    def set_input_shape(self, name, shape):
        self._sizes = {"batch": shape[0], "sequence": shape[1]}
        return True

    def infer_shapes(self):
        return []

    def get_tensor_shape(self, name):
        item = (self._engine.inputs | self._engine.outputs)[name]
        return tuple(dim if isinstance(dim, int) else self._sizes[dim] for dim in item.shape)

    def set_tensor_address(self, name, address):
        self._addresses[name] = address
        return True

    def execute_async_v3(self, stream):
        return _driver().cuLaunchHostFunc(ctypes.c_void_p(stream), self._work, None) == 0

    def _compute(self, _argument):
        names = list(self._engine.outputs)
        results = self._engine.session.run(names, {name: self._view(name) for name in self._engine.inputs})
        for name, result in zip(names, results, strict=True):
            self._view(name)[...] = _as_a_gpu(result)

    def _view(self, name):
        shape, dtype = self.get_tensor_shape(name), np.dtype(self._engine.get_tensor_dtype(name))
        memory = (ctypes.c_uint8 * (int(np.prod(shape)) * dtype.itemsize)).from_address(self._addresses[name])
        return np.frombuffer(memory, dtype).reshape(shape)
