/* A client of Tidegauge's control interface in one file: copy it beside your tests. It needs a POSIX system and no library.
 *
 *     char body[STEERING_BYTES];
 *     int status = steering_ask("POST", "/v1/brokers/leader-of:orders-0/kill", NULL, body);
 *
 * A request returns when its effect is there. The status is HTTP's; the body is JSON, also that of an error. */
#ifndef STEERING_H
#define STEERING_H

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define STEERING_BYTES (1 << 20)
#define STEERING_LIMIT_SECONDS 150

/* Connects to TIDEGAUGE_CONTROL, else http://127.0.0.1:19079; returns the socket, or -1. */
static int steering_connect(char *host, size_t size) {
    const char *url = getenv("TIDEGAUGE_CONTROL");
    snprintf(host, size, "%s", url && *url ? strstr(url, "//") + 2 : "127.0.0.1:19079");
    host[strcspn(host, "/")] = 0;
    char name[256];
    snprintf(name, sizeof name, "%s", host);
    char *colon = strrchr(name, ':');
    *colon = 0;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(name, colon + 1, &hints, &found)) return -1;
    int connection = socket(found->ai_family, found->ai_socktype, 0);
    struct timeval limit = {.tv_sec = STEERING_LIMIT_SECONDS};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(connection, found->ai_addr, found->ai_addrlen)) {
        close(connection);
        connection = -1;
    }
    freeaddrinfo(found);
    return connection;
}

/* Sends a request (body NULL: none) and puts the response's body into an array of STEERING_BYTES.
 * Returns the HTTP status, or -1 where there is no response. */
static int steering_ask(const char *method, const char *path, const char *body, char *response) {
    char host[256], head[4096];
    const char *token = getenv("TIDEGAUGE_CONTROL_TOKEN");
    int connection = steering_connect(host, sizeof host), status = -1;
    if (connection < 0) return -1;
    size_t length = body ? strlen(body) : 0, got = 0;
    int size = snprintf(head, sizeof head,
                        "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"
                        "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                        method, path, host, token ? token : "", length);
    if (size < (int)sizeof head && write(connection, head, size) == size &&
        (!length || write(connection, body, length) == (ssize_t)length)) {
        ssize_t part;
        while (got < STEERING_BYTES - 1 && (part = read(connection, response + got, STEERING_BYTES - 1 - got)) > 0)
            got += part;
    }
    close(connection);
    response[got] = 0;
    char *end = strstr(response, "\r\n\r\n");
    if (!end || sscanf(response, "HTTP/1.1 %d", &status) != 1) return -1;
    memmove(response, end + 4, strlen(end + 4) + 1);
    return status;
}

/* Returns what follows the first "key": in a response, or NULL. */
static const char *steering_value(const char *response, const char *key) {
    char quoted[128];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *found = strstr(response, quoted);
    return found ? found + strlen(quoted) : NULL;
}

/* Copies the text that the first "key" of a response has; without escapes, which addresses have none of. */
static void steering_text(const char *response, const char *key, char *text, size_t size) {
    const char *value = steering_value(response, key);
    snprintf(text, size, "%.*s", value ? (int)strcspn(value + 1, "\"") : 0, value ? value + 1 : "");
}

/* Returns the number that the first "key" of a response has, or -1. */
static long steering_number(const char *response, const char *key) {
    const char *value = steering_value(response, key);
    return value ? strtol(value, NULL, 10) : -1;
}

#endif
