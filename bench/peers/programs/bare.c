/* The bare loop of bare.py with sendmmsg, in C: what the kernel alone costs.

       cc -O2 -o bare bare.c && ./bare MESSAGE_BYTES FAN_OUT

   It is no server, and is only ever spoken to by the benchmark, on loopback. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum {
    BURSTS_MAX = 32,
    BURST_BYTES = 65536,
    DATAGRAM_BYTES_MAX = 1200,
    LINES_MAX = 64,
    CALL_BYTES_MAX = 65507,
    SEGMENTS_MAX = 64,
    BUFFER_BYTES = 4 * 1024 * 1024,
    SUBSCRIBERS_MAX = 65536,
    MESSAGES_MAX = 1024 /* of one sendmmsg */
};

static char buffer[BURSTS_MAX * BURST_BYTES];
static struct sockaddr_in subscribers[SUBSCRIBERS_MAX];
static size_t subscriber_count;

static struct mmsghdr messages[MESSAGES_MAX];
static struct iovec pieces[MESSAGES_MAX];
static char controls[MESSAGES_MAX][CMSG_SPACE(sizeof(unsigned short))];
static unsigned waiting;

static void flush(int sock)
{
    for (unsigned sent = 0; sent < waiting;) {
        int count = sendmmsg(sock, messages + sent, waiting - sent, 0);
        sent += count > 0 ? (unsigned)count : 1; /* what is refused is lost */
    }
    waiting = 0;
}

static void put(int sock, struct sockaddr_in *address, char *data, size_t size, unsigned short datagram_bytes)
{
    if (waiting == MESSAGES_MAX)
        flush(sock);
    pieces[waiting] = (struct iovec){data, size};
    struct msghdr *header = &messages[waiting].msg_hdr;
    memset(header, 0, sizeof *header);
    header->msg_name = address;
    header->msg_namelen = sizeof *address;
    header->msg_iov = &pieces[waiting];
    header->msg_iovlen = 1;
    if (size > datagram_bytes) {
        header->msg_control = controls[waiting];
        header->msg_controllen = sizeof controls[waiting];
        struct cmsghdr *control = CMSG_FIRSTHDR(header);
        control->cmsg_level = IPPROTO_UDP;
        control->cmsg_type = UDP_SEGMENT;
        control->cmsg_len = CMSG_LEN(sizeof datagram_bytes);
        memcpy(CMSG_DATA(control), &datagram_bytes, sizeof datagram_bytes);
    }
    waiting++;
}

static void subscribe(const struct sockaddr_in *source)
{
    for (size_t i = 0; i < subscriber_count; i++)
        if (subscribers[i].sin_port == source->sin_port &&
            subscribers[i].sin_addr.s_addr == source->sin_addr.s_addr)
            return;
    if (subscriber_count < SUBSCRIBERS_MAX)
        subscribers[subscriber_count++] = *source;
}

int main(int argc, char **argv)
{
    if (argc != 3 || atoi(argv[1]) < 1 || atoi(argv[1]) > DATAGRAM_BYTES_MAX || atoi(argv[2]) < 1) {
        fprintf(stderr, "usage: bare MESSAGE_BYTES FAN_OUT\n");
        return 2;
    }
    size_t message_bytes = (size_t)atoi(argv[1]), fan_out = (size_t)atoi(argv[2]), cursor = 0;
    size_t lines = DATAGRAM_BYTES_MAX / message_bytes;
    size_t datagram_bytes = message_bytes * (lines < LINES_MAX ? lines : LINES_MAX);
    size_t segments = CALL_BYTES_MAX / datagram_bytes;
    size_t call_bytes = datagram_bytes * (segments < SEGMENTS_MAX ? segments : SEGMENTS_MAX);

    int sock = socket(AF_INET, SOCK_DGRAM, 0), on = 1, bytes = BUFFER_BYTES;
    struct sockaddr_in self = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}, source;
    socklen_t length = sizeof self;
    setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(sock, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
    if (sock < 0 || bind(sock, (struct sockaddr *)&self, sizeof self) ||
        getsockname(sock, (struct sockaddr *)&self, &length)) {
        perror("bare");
        return 1;
    }
    printf("bare loop: serving on 127.0.0.1:%d\n", ntohs(self.sin_port));
    fflush(stdout);

    for (;;) {
        size_t filled = 0;
        for (int burst = 0; burst < BURSTS_MAX; burst++) {
            length = sizeof source;
            ssize_t count = recvfrom(sock, buffer + filled, BURST_BYTES, burst ? MSG_DONTWAIT : 0,
                                     (struct sockaddr *)&source, &length);
            if (count < 0)
                break;
            if (!memchr(buffer + filled, ' ', count < DATAGRAM_BYTES_MAX ? (size_t)count : DATAGRAM_BYTES_MAX))
                subscribe(&source);
            else
                filled += (size_t)count;
        }
        size_t copies = filled / message_bytes * fan_out;
        size_t some = copies < subscriber_count ? copies : subscriber_count;
        for (size_t i = 0; i < some; i++) {
            struct sockaddr_in *address = &subscribers[cursor++ % subscriber_count];
            size_t size = (copies / some + (i < copies % some)) * message_bytes;
            for (size_t start = 0; start < size; start += call_bytes) {
                size_t left = size - start;
                put(sock, address, buffer + start, left < call_bytes ? left : call_bytes,
                    (unsigned short)datagram_bytes);
            }
        }
        flush(sock);
    }
}
