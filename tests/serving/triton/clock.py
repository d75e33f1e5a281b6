"""A wall clock that jumps for one server alone: a preloaded library adds to it what a file says at that moment."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

# Waiting until a moment of the wall clock is shifted back for the kernel, which knows nothing of the jump; moments of
# the monotonic clock are small numbers and stay as they are.
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *shared;
__attribute__((constructor)) static void map(void) {
    const char *path = getenv("TRIMARAN_TEST_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) shared = found;
    if (file >= 0) close(file);
}
static long jumped(void) { return shared ? *shared : 0; }
int clock_gettime(clockid_t which, struct timespec *now) {
    int code = syscall(SYS_clock_gettime, which, now);
    if (!code && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += jumped();
    return code;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) { now->tv_sec = found.tv_sec; now->tv_usec = found.tv_nsec / 1000; }
    return 0;
}
time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
static struct timespec true_moment(const struct timespec *end) {
    struct timespec found = *end;
    if (found.tv_sec > 1000000000L) found.tv_sec -= jumped();
    return found;
}
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *end) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!next) next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    struct timespec moment = true_moment(end);
    return next(cond, mutex, &moment);
}
int sem_timedwait(sem_t *sem, const struct timespec *end) {
    static int (*next)(sem_t *, const struct timespec *);
    if (!next) next = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec moment = true_moment(end);
    return next(sem, &moment);
}
"""


@dataclass(frozen=True)
class JumpingClock:
    """`environment` is for the process, whose children inherit it."""

    library: Path
    file: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "TRIMARAN_TEST_CLOCK_FILE": str(self.file)}

    def jump_to(self, seconds: int) -> None:
        """So far from the true time."""
        with self.file.open("r+b") as stream:
            stream.write(struct.pack("q", seconds))


def jumping_clock(folder: Path) -> JumpingClock:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make a jumping clock with")
    source, library, file = folder / "clock.c", folder / "clock.so", folder / "offset"
    source.write_text(_SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    file.write_bytes(struct.pack("q", 0))
    return JumpingClock(library, file)
