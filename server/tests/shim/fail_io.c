/*
 * Makes the k-th operation on a server's files fail, under the built binary.
 *
 * Loaded with LD_PRELOAD. It counts the operations that change what is on disk below FAIL_IO_DIR,
 * and makes the one numbered FAIL_IO_AT fail:
 *
 *   FAIL_IO_DIR      the data directory, absolute
 *   FAIL_IO_FILES    what the names of the files below it begin with; without it they are those of
 *                    the log (the segments and CONTROL: a snapshot that fails is no reason to stop)
 *   FAIL_IO_AT       which operation fails, from 1
 *   FAIL_IO_ERRNO    with which error
 *   FAIL_IO_OPS      which operations count: letters of "wsocr" (write, sync, open, open that makes
 *                    the file, rename)
 *   FAIL_IO_LASTING  if set, every later one fails as well
 *   FAIL_IO_REPORT   a file that is written at the moment an operation fails
 *   FAIL_IO_WHEN     if set, operations are counted only while this file exists
 *   FAIL_IO_HOLD     if set, operations of FAIL_IO_OPS wait as long as this file exists
 *   FAIL_IO_EXIT     if set, the process does not exit by itself as long as this file exists
 *   FAIL_IO_SYNCED   if set, a folder that gets a copy of a file whenever a sync of it is through:
 *                    what a power cut leaves at the least, or a little more: what is written between
 *                    the sync and the copy
 *
 * A sync that fails has not synced, a write that fails has written nothing: what the disk really
 * does in between is the simulated disk's part (sim/).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long done;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_counted_path(const char *path) {
    const char *dir = getenv("FAIL_IO_DIR");
    if (dir == NULL || strncmp(path, dir, strlen(dir)) != 0) {
        return 0;
    }
    const char *rest = path + strlen(dir), *files = getenv("FAIL_IO_FILES");
    if (files != NULL) {
        return rest[0] == '/' && strncmp(rest + 1, files, strlen(files)) == 0;
    }
    /* The probe of the disk is no part of the log. */
    if (strncmp(rest, "/wal/probe", 10) == 0) {
        return 0;
    }
    return strncmp(rest, "/wal", 4) == 0 || strncmp(rest, "/CONTROL", 8) == 0;
}

/* The path of an open file: 0 where it has none. */
static int path_of(int fd, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) {
        return 0;
    }
    path[length] = 0;
    return 1;
}

static int is_counted_file(int fd) {
    char path[PATH_MAX];
    return path_of(fd, path) && is_counted_path(path);
}

static void report(char op, long number) {
    const char *path = getenv("FAIL_IO_REPORT");
    if (path == NULL) {
        return;
    }
    int fd = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        dprintf(fd, "%c %ld\n", op, number);
        close(fd);
    }
}

/* Whether the file named by the variable exists. */
static int exists(const char *variable) {
    const char *path = getenv(variable);
    return path != NULL && access(path, F_OK) == 0;
}

static void wait_while_exists(const char *variable) {
    while (exists(variable)) {
        usleep(1000);
    }
}

/* Counts an operation; tells whether it is to fail, with errno set. */
static int fails(char op) {
    const char *ops = getenv("FAIL_IO_OPS");
    const char *at = getenv("FAIL_IO_AT");
    const char *code = getenv("FAIL_IO_ERRNO");
    if (ops == NULL || strchr(ops, op) == NULL) {
        return 0;
    }
    wait_while_exists("FAIL_IO_HOLD");
    if (at == NULL || code == NULL || (getenv("FAIL_IO_WHEN") != NULL && !exists("FAIL_IO_WHEN"))) {
        return 0;
    }
    long number = atomic_fetch_add(&done, 1) + 1;
    long first = atol(at);
    if (number != first && !(number > first && getenv("FAIL_IO_LASTING") != NULL)) {
        return 0;
    }
    report(op, number);
    errno = atoi(code);
    return 1;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    if (is_counted_file(fd) && fails('w')) {
        return -1;
    }
    return REAL(pwrite)(fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    if (is_counted_file(fd) && fails('w')) {
        return -1;
    }
    return REAL(pwrite64)(fd, bytes, count, offset);
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    if (is_counted_file(fd) && fails('w')) {
        return -1;
    }
    return REAL(pwritev2)(fd, pieces, count, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off64_t offset, int flags) {
    if (is_counted_file(fd) && fails('w')) {
        return -1;
    }
    return REAL(pwritev64v2)(fd, pieces, count, offset, flags);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    if (fd > 2 && is_counted_file(fd) && fails('w')) {
        return -1;
    }
    return REAL(write)(fd, bytes, count);
}

/* One copy at a time: a later one is of a later sync. */
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

/* Copies a file that was synced. It is read through `fd`: to open and close it once more would
 * drop the locks that SQLite holds on it. */
static void keep_synced(int fd) {
    const char *folder = getenv("FAIL_IO_SYNCED");
    char path[PATH_MAX], draft[PATH_MAX + 8], kept[PATH_MAX], piece[65536];
    if (folder == NULL || !path_of(fd, path)) {
        return;
    }
    const char *name = strrchr(path, '/');
    if (snprintf(kept, sizeof kept, "%s%s", folder, name) >= (int)sizeof kept) {
        abort();
    }
    snprintf(draft, sizeof draft, "%s.draft", kept);
    pthread_mutex_lock(&keeping);
    int copy = REAL(open)(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    off_t at = 0;
    for (ssize_t got; (got = pread(fd, piece, sizeof piece, at)) > 0; at += got) {
        if (REAL(write)(copy, piece, got) != got) {
            abort();
        }
    }
    close(copy);
    if (REAL(rename)(draft, kept) != 0) {
        abort();
    }
    pthread_mutex_unlock(&keeping);
}

static int sync_file(int fd, int (*sync)(int)) {
    int is_counted = is_counted_file(fd);
    if (is_counted && fails('s')) {
        return -1;
    }
    int done = sync(fd);
    if (is_counted && done == 0) {
        keep_synced(fd);
    }
    return done;
}

int fsync(int fd) { return sync_file(fd, REAL(fsync)); }

int fdatasync(int fd) { return sync_file(fd, REAL(fdatasync)); }

int rename(const char *from, const char *to) {
    if (is_counted_path(to) && fails('r')) {
        return -1;
    }
    return REAL(rename)(from, to);
}

/* Opens that may write. */
static int open_fails(const char *path, int flags) {
    if ((flags & (O_WRONLY | O_RDWR)) == 0 || !is_counted_path(path)) {
        return 0;
    }
    return fails('o') || ((flags & O_CREAT) != 0 && fails('c'));
}

#define MODE(flags, mode)                                                                         \
    if (((flags) & O_CREAT) != 0) {                                                               \
        va_list rest;                                                                             \
        va_start(rest, flags);                                                                    \
        mode = va_arg(rest, mode_t);                                                              \
        va_end(rest);                                                                             \
    }

int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    MODE(flags, mode)
    return open_fails(path, flags) ? -1 : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    MODE(flags, mode)
    return open_fails(path, flags) ? -1 : REAL(open64)(path, flags, mode);
}

void exit(int code) {
    wait_while_exists("FAIL_IO_EXIT");
    REAL(exit)(code);
    __builtin_unreachable();
}
