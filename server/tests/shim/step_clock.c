/*
 * Moves the wall clock of one process: it reads as many seconds more or less as the file named
 * STEP_CLOCK_FILE says, looked up at every question. The monotonic clock is left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long step_seconds(void) {
    char text[32] = {0};
    const char *path = getenv("STEP_CLOCK_FILE");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    return length > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        time->tv_sec += step_seconds();
    }
    return result;
}
