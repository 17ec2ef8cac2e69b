/* A wall clock that can be set, for one process: everybody else's goes on as it does.
 *
 *     cc -O2 -shared -fPIC -o wall.so wall.c
 *     LD_PRELOAD=wall.so WALL_OFFSET=/elsewhere/offset program
 *
 * WALL_OFFSET is a file of 8 octets, a number of microseconds in the machine's byte order: so far is the clock on the
 * wall ahead of the real one, from the moment on when the file says so. Clocks that nobody can set are left alone.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const _Atomic int64_t none;
static const _Atomic int64_t *offset_us = &none;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("WALL_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        abort();
    void *mapped = mmap(NULL, sizeof *offset_us, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        abort();
    offset_us = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t us = (int64_t)now->tv_sec * 1000000 + now->tv_nsec / 1000 + atomic_load(offset_us);
    now->tv_sec = us / 1000000;
    now->tv_nsec = us % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where)
        *where = now.tv_sec;
    return now.tv_sec;
}
