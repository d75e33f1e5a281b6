"""`trtexec` for rehearsals: the flags that our code gives, and the lines that it reads."""

import sys
from pathlib import Path

import tensorrt as trt

KNOWN = {
    "onnx", "saveEngine", "device", "skipInference", "noTF32", "verbose", "profilingVerbosity",
    "minShapes", "optShapes", "maxShapes", "memPoolSize", "builderOptimizationLevel", "timingCacheFile", "help",
}  # fmt: skip
LETTERS = {"INTERNAL_ERROR": "E", "ERROR": "E", "WARNING": "W", "INFO": "I", "VERBOSE": "V"}


class Log(trt.Logger):
    def log(self, severity, message):
        sys.stdout.write(f"[11/19/2026-22:11:11] [{LETTERS[severity.name]}] [TRT] {message}\n")


def shapes(text):
    return {name: tuple(map(int, sizes.split("x"))) for name, sizes in (part.split(":") for part in text.split(","))}


def main():
    major, minor, patch, build = trt.__version__.split(".")
    number = f"{int(major):02}{int(minor):02}{int(patch):02}"
    sys.stdout.write(f"&&&& RUNNING TensorRT.trtexec [TensorRT v{number}] [b{build}] # trtexec\n")
    flags = dict(argument.removeprefix("--").partition("=")[::2] for argument in sys.argv[1:])
    if "help" in flags:
        return 0
    log = Log()
    if unknown := set(flags) - KNOWN:
        log.log(trt.Severity.ERROR, f"Unknown option: --{min(unknown)}")
        return 1
    builder = trt.Builder(log)
    network = builder.create_network(1)
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(flags["onnx"]):
        for index in range(parser.num_errors):
            log.log(trt.Severity.ERROR, f"ModelImporter.cpp: {parser.get_error(index).desc()}")
        return 1
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    low, typical, high = (shapes(flags[f"{which}Shapes"]) for which in ("min", "opt", "max"))
    for name in low:
        profile.set_shape(name, low[name], typical[name], high[name])
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        log.log(trt.Severity.ERROR, "Engine could not be created from network")
        return 1
    Path(flags["saveEngine"]).write_bytes(plan)
    if "timingCacheFile" in flags:
        Path(flags["timingCacheFile"]).write_bytes(b"timed")
    return 0


sys.exit(main())
