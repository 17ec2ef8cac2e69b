/*
 * relay - the physical limit for a broker on this machine: one thread that only copies bytes.
 *
 *     cc -O2 -o relay relay.c
 *     ./relay 5702                    listens on 127.0.0.1:5702
 *
 * It answers the AMQP 0-9-1 handshake and the declarations of amqpload (and of any client that sends one method
 * at a time), and from the first basic.publish of a connection on it copies what that connection sends, unread,
 * to the connection that consumes from the queue. amqpload takes the basic.publish frames that arrive there for
 * deliveries. No parsing, no routing, no queue, no confirms: no broker that speaks TCP through one thread can be
 * faster than this with the same system calls.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER = 1 << 18, MAX_CONNECTIONS = 256 };

typedef struct {
    int fd;
    bool greeted, pipe, waiting; /* pipe: its bytes are copied; waiting: it could not be written to */
    uint8_t *in;
    size_t len;
} Conn;

static int epoll_fd;
static Conn *conns[MAX_CONNECTIONS];
static Conn *consumer; /* the last one that consumed */

static void watch(Conn *c, uint32_t events, int op) {
    struct epoll_event e = {.events = events, .data.ptr = c};
    epoll_ctl(epoll_fd, op, c->fd, &e);
}

static void drop(Conn *c) {
    if (consumer == c) consumer = NULL;
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (conns[i] == c) conns[i] = NULL;
    close(c->fd);
    free(c->in);
    free(c);
}

static void answer(Conn *c, uint16_t channel, uint16_t class, uint16_t method, const void *args, size_t n) {
    uint8_t frame[512] = {1, (uint8_t)(channel >> 8), (uint8_t)channel, 0, 0, (uint8_t)((n + 4) >> 8), (uint8_t)(n + 4),
                          (uint8_t)(class >> 8), (uint8_t)class, (uint8_t)(method >> 8), (uint8_t)method};
    memcpy(frame + 11, args, n);
    frame[11 + n] = 0xce;
    if (send(c->fd, frame, 12 + n, MSG_NOSIGNAL) < 0) perror("send");
}

/* Handles one method frame; p is its payload. False: the connection is gone. */
static bool method(Conn *c, uint16_t channel, const uint8_t *p) {
    uint16_t class = (uint16_t)(p[0] << 8 | p[1]), id = (uint16_t)(p[2] << 8 | p[3]);
    uint8_t declared[260 + 8] = {0};
    switch (class << 8 | id) {
    case 10 << 8 | 11: answer(c, 0, 10, 30, (uint8_t[]){8, 0, 0, 2, 0, 0, 0, 0}, 8); break; /* start-ok: tune */
    case 10 << 8 | 31: break;                                                               /* tune-ok */
    case 10 << 8 | 40: answer(c, 0, 10, 41, "", 1); break;                                  /* open */
    case 10 << 8 | 50: answer(c, 0, 10, 51, "", 0); drop(c); return false;                  /* close */
    case 20 << 8 | 10: answer(c, channel, 20, 11, "\0\0\0", 4); break;                      /* channel.open */
    case 50 << 8 | 10:                                                                      /* queue.declare */
        memcpy(declared, p + 6, p[6] + 1u);
        answer(c, channel, 50, 11, declared, p[6] + 9u);
        break;
    case 50 << 8 | 40: answer(c, channel, 50, 41, "\0\0\0", 4); break; /* queue.delete */
    case 60 << 8 | 20:                                                 /* basic.consume */
        answer(c, channel, 60, 21, "\1c", 2);
        consumer = c;
        break;
    default: answer(c, channel, class, id + 1, "", 0); /* the -ok methods without arguments */
    }
    return true;
}

/* Copies what is in the buffer of a pipe to the consumer. False: the consumer is full. */
static bool copy(Conn *c) {
    while (c->len) {
        if (!consumer) {
            c->len = 0;
            return true;
        }
        ssize_t n = send(consumer->fd, c->in, c->len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) return errno != EAGAIN;
        memmove(c->in, c->in + n, c->len - (size_t)n);
        c->len -= (size_t)n;
    }
    return true;
}

static void readable(Conn *c) {
    ssize_t n = recv(c->fd, c->in + c->len, BUFFER - c->len, MSG_DONTWAIT);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN) drop(c);
        return;
    }
    c->len += (size_t)n;
    if (!c->greeted && c->len >= 8) {
        static const uint8_t start[] = "\0\11\0\0\0\0\0\0\0\5PLAIN\0\0\0\5en_US";
        c->greeted = true;
        memmove(c->in, c->in + 8, c->len -= 8);
        answer(c, 0, 10, 10, start, sizeof start - 1);
    }
    bool bye = c->len >= 12 && !memcmp(c->in, "\1\0\0", 3) && !memcmp(c->in + 7, "\0\12\0\62", 4);
    while ((!c->pipe || bye) && c->len >= 8) {
        size_t size = (size_t)c->in[3] << 24 | (size_t)c->in[4] << 16 | (size_t)c->in[5] << 8 | c->in[6];
        if (c->len < size + 8) return;
        if (!memcmp(c->in + 7, "\0\74\0\50", 4)) { /* basic.publish: from now on only copy */
            c->pipe = true;
            break;
        }
        if (!method(c, (uint16_t)(c->in[1] << 8 | c->in[2]), c->in + 7)) return;
        memmove(c->in, c->in + size + 8, c->len -= size + 8);
    }
    if (c->pipe && !copy(c)) { /* wait until the consumer takes more */
        c->waiting = true;
        watch(c, 0, EPOLL_CTL_MOD);
        watch(consumer, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
    }
}

static void writable(void) {
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (conns[i] && conns[i]->waiting) {
            if (!copy(conns[i])) return;
            conns[i]->waiting = false;
            watch(conns[i], EPOLLIN, EPOLL_CTL_MOD);
        }
    if (consumer) watch(consumer, EPOLLIN, EPOLL_CTL_MOD);
}

static void quit(int number) { _exit(number != SIGTERM); }

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: relay PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, quit);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    struct sockaddr_in address = {AF_INET, htons((uint16_t)atoi(argv[1])), {htonl(INADDR_LOOPBACK)}, {0}};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128)) {
        perror("listen");
        return 1;
    }
    printf("listening on 127.0.0.1:%s\n", argv[1]);
    fflush(stdout);
    epoll_fd = epoll_create1(0);
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &(struct epoll_event){.events = EPOLLIN, .data.ptr = NULL});
    for (;;) {
        struct epoll_event e;
        if (epoll_wait(epoll_fd, &e, 1, -1) != 1) continue; /* one at a time: a handler may drop any connection */
        Conn *c = e.data.ptr;
        if (!c) {
            int fd = accept(listener, NULL, NULL), slot = 0;
            while (slot < MAX_CONNECTIONS && conns[slot]) slot++;
            if (fd < 0) continue;
            if (slot == MAX_CONNECTIONS) {
                close(fd);
                continue;
            }
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
            c = conns[slot] = calloc(1, sizeof *c);
            c->fd = fd;
            c->in = malloc(BUFFER);
            watch(c, EPOLLIN, EPOLL_CTL_ADD);
        } else if (e.events & EPOLLOUT) {
            writable();
        } else {
            readable(c);
        }
    }
}
