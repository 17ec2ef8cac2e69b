/* Writes down what a process does to the files of one directory, so that a power cut can be played afterwards.
 *
 *     cc -O2 -shared -fPIC -pthread -o lossy.so lossy.c
 *     LD_PRELOAD=lossy.so LOSSY_DIR=/data LOSSY_LOG=/elsewhere/log program
 *
 * A kill leaves in the page cache what was never synced; a power cut does not. This library stands between the program
 * and the kernel: every change of a file or a name below LOSSY_DIR is made as asked for and then appended to LOSSY_LOG,
 * and so are the beginnings and the ends of fsync and fdatasync. lossy.py reads the log when the program is dead, and
 * puts the directory into a state that the medium could have been in.
 *
 * A change and its record are made under one lock, so the log has the order that the kernel saw. A sync holds no lock;
 * it covers what stands in the log before its beginning, and is worth something only if its end stands there, too. The
 * log is itself never synced: it only has to outlive the process.
 *
 * With LOSSY_GATE, a file, every sync first waits for a shared flock of it; who holds it exclusively stops all syncs.
 *
 * A sync that the program has the kernel carry out (io_submit with IOCB_CMD_FDSYNC, one at a time) is carried out by a
 * thread here, so that it can be stopped and written down like any other. It begins where it is submitted: nothing that
 * is written later is promised to be covered.
 *
 * Only what a program does through these functions of the C library is seen: not mmap, stdio, io_uring or descriptors
 * that were duplicated. lossy.py compares the directory with the log, so what was not seen does not pass unnoticed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#if __SIZEOF_LONG__ != 8
#error "offsets are passed to the kernel in one register: 64-bit systems only"
#endif

static long (*libc_syscall)(long, ...);

static long (*find_syscall(void))(long, ...) {
    if (!libc_syscall) *(void **)&libc_syscall = dlsym(RTLD_NEXT, "syscall");
    return libc_syscall;
}

/* What the C library's syscall() does: this library has one of its own, below. */
#define SYSTEM(...) find_syscall()(__VA_ARGS__)

enum { OPEN = 1, WRITE, TRUNCATE, MAKE_DIRECTORY, REMOVE, RENAME, LINK, SYNC_BEGIN, SYNC_END };

struct record { /* followed by `size` octets: what was written, a path, or two paths with a zero between them */
    uint32_t kind;
    int32_t pid, fd, flags;
    int64_t offset;
    uint64_t size;
};

enum { DESCRIPTORS = 1 << 16 };

static char root[PATH_MAX];
static size_t root_length;
static const char *gate;
static int log_fd = -1;
static atomic_bool tracked[DESCRIPTORS];
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noreturn)) static void fail(const char *what) {
    fprintf(stderr, "lossy: %s: %s\n", what, strerror(errno));
    abort();
}

__attribute__((constructor)) static void start(void) {
    const char *directory = getenv("LOSSY_DIR"), *path = getenv("LOSSY_LOG");
    if (!directory || !path) return;
    gate = getenv("LOSSY_GATE");
    int fd = (int)SYSTEM(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    /* Far from the small numbers, which shells use as they like. */
    if (fd < 0 || (log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 700)) < 0) fail(path);
    SYSTEM(SYS_close, fd);
    root_length = strlen(directory);
    if (root_length >= sizeof root) fail(directory);
    memcpy(root, directory, root_length + 1);
}

/* ------------------------------------------------------------------ the log */

static void record(int kind, int fd, int flags, int64_t offset, const void *data, size_t size) {
    struct record head = {(uint32_t)kind, getpid(), fd, flags, offset, size};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)data, size}};
    int before = errno;
    if (SYSTEM(SYS_writev, log_fd, parts, 2) != (long)(sizeof head + size)) fail("writing the log");
    errno = before;
}

static bool is_tracked(int fd) { return fd >= 0 && fd < DESCRIPTORS && tracked[fd]; }

/* The absolute path, where it lies below the directory that is watched. */
static bool is_inside(int directory, const char *path, char *absolute) {
    if (log_fd < 0 || !path) return false;
    size_t at = 0;
    if (path[0] != '/') {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t n = readlink(directory == AT_FDCWD ? "/proc/self/cwd" : link, absolute, PATH_MAX - 1);
        if (n < 0) return false;
        at = (size_t)n;
        absolute[at++] = '/';
    }
    if (at + strlen(path) >= PATH_MAX) return false;
    strcpy(absolute + at, path);
    return !strncmp(absolute, root, root_length) && (!absolute[root_length] || absolute[root_length] == '/');
}

/* ------------------------------------------------------------------ descriptors */

static int open_at(int directory, const char *path, int flags, mode_t mode) {
    char absolute[PATH_MAX];
    if (!is_inside(directory, path, absolute)) return (int)SYSTEM(SYS_openat, directory, path, flags, mode);
    pthread_mutex_lock(&order);
    int fd = (int)SYSTEM(SYS_openat, directory, path, flags, mode);
    if (fd >= 0) {
        if (fd >= DESCRIPTORS) fail("too many descriptors");
        tracked[fd] = true;
        record(OPEN, fd, flags, 0, absolute, strlen(absolute));
    }
    pthread_mutex_unlock(&order);
    return fd;
}

static mode_t mode_of(int flags, va_list rest) {
    return flags & (O_CREAT | __O_TMPFILE) ? (mode_t)va_arg(rest, int) : 0;
}

#define OPENER(name)                                      \
    int name(const char *path, int flags, ...) {          \
        va_list rest;                                     \
        va_start(rest, flags);                            \
        mode_t mode = mode_of(flags, rest);               \
        va_end(rest);                                     \
        return open_at(AT_FDCWD, path, flags, mode);      \
    }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name)                                        \
    int name(int directory, const char *path, int flags, ...) { \
        va_list rest;                                          \
        va_start(rest, flags);                                 \
        mode_t mode = mode_of(flags, rest);                    \
        va_end(rest);                                          \
        return open_at(directory, path, flags, mode);          \
    }
OPENER_AT(openat)
OPENER_AT(openat64)

int close(int fd) {
    /* The number may belong to a socket next. */
    if (is_tracked(fd)) tracked[fd] = false;
    return (int)SYSTEM(SYS_close, fd);
}

/* ------------------------------------------------------------------ contents */

/* An offset of -1: at the descriptor's own position. */
static ssize_t put(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    bool is_ours = is_tracked(fd);
    if (is_ours) pthread_mutex_lock(&order);
    ssize_t done = offset < 0 && !flags ? SYSTEM(SYS_writev, fd, parts, count)
                                        : SYSTEM(SYS_pwritev2, fd, parts, count, offset, 0L, flags);
    if (!is_ours) return done;
    if (done > 0) {
        int before = errno;
        char *data = malloc((size_t)done), *to = data;
        if (!data) fail("malloc");
        for (size_t rest = (size_t)done; rest; parts++) {
            size_t n = parts->iov_len < rest ? parts->iov_len : rest;
            memcpy(to, parts->iov_base, n);
            to += n;
            rest -= n;
        }
        if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - done;
        record(WRITE, fd, flags, offset, data, (size_t)done);
        free(data);
        errno = before;
    }
    pthread_mutex_unlock(&order);
    return done;
}

static ssize_t put_one(int fd, const void *data, size_t size, off_t offset) {
    struct iovec part = {(void *)data, size};
    return put(fd, &part, 1, offset, 0);
}

ssize_t write(int fd, const void *data, size_t size) { return put_one(fd, data, size, -1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return put_one(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) { return put_one(fd, data, size, at); }
ssize_t writev(int fd, const struct iovec *parts, int n) { return put(fd, parts, n, -1, 0); }
ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t at) { return put(fd, parts, n, at, 0); }
ssize_t pwritev64(int fd, const struct iovec *parts, int n, off_t at) { return put(fd, parts, n, at, 0); }
ssize_t pwritev2(int fd, const struct iovec *parts, int n, off_t at, int flags) { return put(fd, parts, n, at, flags); }
ssize_t pwritev64v2(int fd, const struct iovec *parts, int n, off_t at, int flags) {
    return put(fd, parts, n, at, flags);
}

static int resize(int fd, off_t size) {
    if (!is_tracked(fd)) return (int)SYSTEM(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&order);
    int result = (int)SYSTEM(SYS_ftruncate, fd, size);
    if (!result) record(TRUNCATE, fd, 0, size, "", 0);
    pthread_mutex_unlock(&order);
    return result;
}
int ftruncate(int fd, off_t size) { return resize(fd, size); }
int ftruncate64(int fd, off_t size) { return resize(fd, size); }

static int resize_path(const char *path, off_t size) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int result = resize(fd, size), before = errno;
    close(fd);
    errno = before;
    return result;
}
int truncate(const char *path, off_t size) { return resize_path(path, size); }
int truncate64(const char *path, off_t size) { return resize_path(path, size); }

/* Space without a change of length is no matter of contents; other modes would be. */
static int allocate(int fd, int mode, off_t at, off_t length) {
    if (!is_tracked(fd)) return (int)SYSTEM(SYS_fallocate, fd, mode, at, length);
    if (mode & ~FALLOC_FL_KEEP_SIZE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    pthread_mutex_lock(&order);
    int result = (int)SYSTEM(SYS_fallocate, fd, mode, at, length);
    struct stat now;
    if (!result && !fstat(fd, &now)) record(TRUNCATE, fd, 0, now.st_size, "", 0);
    pthread_mutex_unlock(&order);
    return result;
}
int fallocate(int fd, int mode, off_t at, off_t length) { return allocate(fd, mode, at, length); }
int fallocate64(int fd, int mode, off_t at, off_t length) { return allocate(fd, mode, at, length); }
int posix_fallocate(int fd, off_t at, off_t length) { return allocate(fd, 0, at, length) ? errno : 0; }
int posix_fallocate64(int fd, off_t at, off_t length) { return allocate(fd, 0, at, length) ? errno : 0; }

/* ------------------------------------------------------------------ syncs */

static void wait_for_gate(void) {
    if (!gate) return;
    int fd = (int)SYSTEM(SYS_openat, AT_FDCWD, gate, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_SH)) fail(gate);
    SYSTEM(SYS_close, fd);
}

static int sync_file(int fd, bool is_data_only) {
    long number = is_data_only ? SYS_fdatasync : SYS_fsync;
    if (!is_tracked(fd)) return (int)SYSTEM(number, fd);
    wait_for_gate();
    /* Begin and end are matched by this number. */
    int64_t thread = gettid();
    record(SYNC_BEGIN, fd, is_data_only, thread, "", 0);
    int result = (int)SYSTEM(number, fd);
    if (!result) record(SYNC_END, fd, is_data_only, thread, "", 0);
    return result;
}
int fsync(int fd) { return sync_file(fd, false); }
int fdatasync(int fd) { return sync_file(fd, true); }

/* ------------------------------------------------------------------ syncs by the kernel */

static struct {
    pthread_t thread;
    struct iocb request;
    bool is_ours;
    long result;
} under_way;

/* No thread has such a number. */
static void record_kernel(int kind) { record(kind, (int)under_way.request.aio_fildes, true, -(int64_t)getpid(), "", 0); }

static void *carry_out(void *nothing) {
    if (under_way.is_ours) wait_for_gate();
    under_way.result = SYSTEM(SYS_fdatasync, (int)under_way.request.aio_fildes) ? -errno : 0;
    if (under_way.is_ours && !under_way.result) record_kernel(SYNC_END);
    uint64_t one = 1;
    if (SYSTEM(SYS_write, under_way.request.aio_resfd, &one, sizeof one) != sizeof one) fail("telling of a sync");
    return nothing;
}

static long begin_sync(const struct iocb *request) {
    if (request->aio_lio_opcode != IOCB_CMD_FDSYNC || !(request->aio_flags & IOCB_FLAG_RESFD)) fail("io_submit");
    under_way.request = *request;
    under_way.is_ours = is_tracked((int)request->aio_fildes);
    if (under_way.is_ours) record_kernel(SYNC_BEGIN);
    errno = pthread_create(&under_way.thread, NULL, carry_out, NULL);
    return errno ? -1 : 1;
}

static long end_sync(struct io_event *event) {
    pthread_join(under_way.thread, NULL);
    *event = (struct io_event){.data = under_way.request.aio_data, .res = under_way.result};
    return 1;
}

/* The C library has no functions for these; a program calls them by number. */
long syscall(long number, ...) {
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(rest, long);
    va_end(rest);
    if (log_fd >= 0) {
        if (number == SYS_io_submit) return begin_sync(((struct iocb **)a[2])[0]);
        if (number == SYS_io_getevents) return end_sync((struct io_event *)a[3]);
    }
    return SYSTEM(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ------------------------------------------------------------------ names */

static int make_directory(int directory, const char *path, mode_t mode) {
    char absolute[PATH_MAX];
    if (!is_inside(directory, path, absolute)) return (int)SYSTEM(SYS_mkdirat, directory, path, mode);
    pthread_mutex_lock(&order);
    int result = (int)SYSTEM(SYS_mkdirat, directory, path, mode);
    if (!result) record(MAKE_DIRECTORY, -1, 0, 0, absolute, strlen(absolute));
    pthread_mutex_unlock(&order);
    return result;
}
int mkdir(const char *path, mode_t mode) { return make_directory(AT_FDCWD, path, mode); }
int mkdirat(int directory, const char *path, mode_t mode) { return make_directory(directory, path, mode); }

static int take_away(int directory, const char *path, int flags) {
    char absolute[PATH_MAX];
    if (!is_inside(directory, path, absolute)) return (int)SYSTEM(SYS_unlinkat, directory, path, flags);
    pthread_mutex_lock(&order);
    int result = (int)SYSTEM(SYS_unlinkat, directory, path, flags);
    if (!result) record(REMOVE, -1, 0, 0, absolute, strlen(absolute));
    pthread_mutex_unlock(&order);
    return result;
}
int unlink(const char *path) { return take_away(AT_FDCWD, path, 0); }
int unlinkat(int directory, const char *path, int flags) { return take_away(directory, path, flags); }
int rmdir(const char *path) { return take_away(AT_FDCWD, path, AT_REMOVEDIR); }

/* Both paths lie inside: nothing here moves files between the directory and elsewhere. */
static int two_names(int kind, int from, const char *old, int to, const char *new, unsigned flags) {
    char both[2 * PATH_MAX];
    bool is_ours = is_inside(from, old, both);
    size_t length = is_ours ? strlen(both) + 1 : 0;
    is_ours = is_ours && is_inside(to, new, both + length);
    if (is_ours) pthread_mutex_lock(&order);
    int result = (int)SYSTEM(kind == LINK ? SYS_linkat : SYS_renameat2, from, old, to, new, flags);
    if (!is_ours) return result;
    if (!result) record(kind, -1, (int)flags, 0, both, length + strlen(both + length));
    pthread_mutex_unlock(&order);
    return result;
}
int rename(const char *old, const char *new) { return two_names(RENAME, AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return two_names(RENAME, from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return two_names(RENAME, from, old, to, new, flags);
}
int link(const char *old, const char *new) { return two_names(LINK, AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int from, const char *old, int to, const char *new, int flags) {
    return two_names(LINK, from, old, to, new, (unsigned)flags);
}
