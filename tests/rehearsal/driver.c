/* NVIDIA's driver library for rehearsals: the calls that our session makes, on host memory. It computes nothing.
 *
 * TRIMARAN_REHEARSAL names one fault: no-device, one-device, old-driver, old-gpu, out-of-memory, lost-device, failed-capture.
 * GPU 0 is called as TRIMARAN_REHEARSAL_GPU says; GPU 1 is called "Second GPU".
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult;
enum { OK = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 100, CAPTURE_INVALIDATED = 901, LAUNCH_FAILED = 719 };

typedef struct Op {
    void *target; const void *source; size_t size;
    void (*function)(void *); void *argument;
    struct Op *next;
} Op;
typedef struct { int capturing; Op *first, *last; } Stream;
typedef struct { Op *first; } Graph;

static int fault(const char *name) {
    const char *told = getenv("TRIMARAN_REHEARSAL");
    return told && strcmp(told, name) == 0;
}

static void perform(const Op *op) {
    if (op->function) op->function(op->argument);
    else memcpy(op->target, op->source, op->size);
}

static CUresult put(Stream *stream, Op op) {
    if (fault("lost-device")) return LAUNCH_FAILED;
    if (!stream->capturing) { perform(&op); return OK; }
    Op *kept = malloc(sizeof(Op));
    *kept = op; kept->next = NULL;
    if (stream->last) stream->last->next = kept; else stream->first = kept;
    stream->last = kept;
    return OK;
}

CUresult cuInit(unsigned flags) { (void)flags; return OK; }
CUresult cuDriverGetVersion(int *version) { *version = fault("old-driver") ? 12080 : 13040; return OK; }
CUresult cuDeviceGetCount(int *count) { *count = fault("no-device") ? 0 : fault("one-device") ? 1 : 2; return OK; }
CUresult cuDeviceGet(int *device, int number) {
    if (number > 1 || (number && fault("one-device")) || fault("no-device")) return NO_DEVICE;
    *device = number;
    return OK;
}
CUresult cuDeviceGetName(char *name, int size, int device) {
    const char *told = getenv("TRIMARAN_REHEARSAL_GPU");
    strncpy(name, device ? "Second GPU" : told ? told : "Rehearsal GPU", (size_t)size - 1);
    name[size - 1] = 0;
    return OK;
}
CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device; *value = attribute == 75 ? (fault("old-gpu") ? 6 : 8) : attribute == 76 ? 6 : 0; return OK;
}
CUresult cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(long)(device + 1); return OK; }
CUresult cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return OK; }
static _Thread_local void *current = (void *)1;
CUresult cuCtxSetCurrent(void *context) { current = context; return OK; }
CUresult cuCtxGetDevice(int *device) { *device = (int)(long)current - 1; return OK; }

static size_t allocated;
CUresult cuMemAlloc_v2(void **address, size_t size) {
    if (fault("out-of-memory")) return OUT_OF_MEMORY;
    size_t *memory = calloc(1, size + 16);
    *memory = size;
    allocated += size;
    *address = (char *)memory + 16;
    return OK;
}
CUresult cuMemFree_v2(void *address) {
    size_t *memory = (size_t *)((char *)address - 16);
    allocated -= *memory;
    free(memory);
    return OK;
}
CUresult cuMemGetInfo_v2(size_t *left, size_t *total) { *total = (size_t)8 << 30; *left = *total - allocated; return OK; }
CUresult cuDeviceGetPCIBusId(char *address, int size, int device) {
    strncpy(address, device ? "0000:02:00.0" : "0000:01:00.0", (size_t)size - 1);
    address[size - 1] = 0;
    return OK;
}
CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) { (void)flags; *address = calloc(1, size); return OK; }
CUresult cuMemFreeHost(void *address) { free(address); return OK; }

CUresult cuStreamCreate(Stream **stream, unsigned flags) { (void)flags; *stream = calloc(1, sizeof(Stream)); return OK; }
CUresult cuStreamDestroy_v2(Stream *stream) { free(stream); return OK; }
CUresult cuStreamSynchronize(Stream *stream) { (void)stream; return fault("lost-device") ? LAUNCH_FAILED : OK; }
CUresult cuMemcpyHtoDAsync_v2(void *target, const void *source, size_t size, Stream *stream) {
    Op op = {target, source, size, NULL, NULL, NULL};
    return put(stream, op);
}
CUresult cuMemcpyDtoHAsync_v2(void *target, const void *source, size_t size, Stream *stream) {
    return cuMemcpyHtoDAsync_v2(target, source, size, stream);
}
CUresult cuLaunchHostFunc(Stream *stream, void (*function)(void *), void *argument) {
    Op op = {NULL, NULL, 0, function, argument, NULL};
    return put(stream, op);
}

CUresult cuEventCreate(void **event, unsigned flags) { (void)flags; *event = calloc(1, sizeof(struct timespec)); return OK; }
CUresult cuEventRecord(void *event, Stream *stream) { (void)stream; clock_gettime(CLOCK_MONOTONIC, event); return OK; }
CUresult cuEventElapsedTime(float *elapsed_ms, const struct timespec *begun, const struct timespec *ended) {
    *elapsed_ms = (float)(ended->tv_sec - begun->tv_sec) * 1e3f + (float)(ended->tv_nsec - begun->tv_nsec) / 1e6f;
    return OK;
}
CUresult cuEventDestroy_v2(void *event) { free(event); return OK; }

CUresult cuStreamBeginCapture_v2(Stream *stream, int mode) {
    (void)mode; stream->capturing = 1; stream->first = stream->last = NULL; return OK;
}
CUresult cuStreamEndCapture(Stream *stream, Graph **graph) {
    stream->capturing = 0;
    if (fault("failed-capture")) return CAPTURE_INVALIDATED;
    *graph = calloc(1, sizeof(Graph));
    (*graph)->first = stream->first;
    return OK;
}
CUresult cuGraphInstantiateWithFlags(Graph **made, Graph *graph, unsigned long long flags) {
    (void)flags; *made = calloc(1, sizeof(Graph)); (*made)->first = graph->first; return OK;
}
CUresult cuGraphDestroy(Graph *graph) { free(graph); return OK; }
CUresult cuGraphLaunch(Graph *graph, Stream *stream) {
    (void)stream;
    if (fault("lost-device")) return LAUNCH_FAILED;
    for (const Op *op = graph->first; op; op = op->next) perform(op);
    return OK;
}
CUresult cuGraphExecDestroy(Graph *graph) {
    for (Op *op = graph->first, *next; op; op = next) { next = op->next; free(op); }
    free(graph);
    return OK;
}
CUresult cuGetErrorName(CUresult code, const char **name) {
    *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
          : code == CAPTURE_INVALIDATED ? "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
          : code == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_UNKNOWN";
    return OK;
}
