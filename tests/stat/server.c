/* A server whose worker outlives it for a moment, and its client. The answer is what the verdict is about: it
   depends on whose locks the server was started with, so that no machine's speed does. */
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t hits_lock = PTHREAD_MUTEX_INITIALIZER;
static int hits;

static int rate(void)
{
    const char *lock = getenv("POUNDLOCK_LOCK");
    return lock && !strcmp(lock, "poundlock") ? 200 : 100;
}

static void hit(void)
{
    pthread_mutex_lock(&hits_lock);
    hits++;
    pthread_mutex_unlock(&hits_lock);
}

static void linger(int signal)
{
    (void)signal;
    usleep(100000);
    _exit(0);
}

static struct sockaddr_in address(const char *port)
{
    struct sockaddr_in of = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
    of.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return of;
}

static int serve(const char *port)
{
    struct sockaddr_in here = address(port);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&here, sizeof here) || listen(listener, 8)) return perror(port), 3;
    if (fork()) for (;;) pause();
    signal(SIGTERM, linger);
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        hit();
        dprintf(connection, "rate: %d\n", rate());
        close(connection);
    }
}

static int ask(const char *port)
{
    struct sockaddr_in there = address(port);
    char answer[64];
    for (int time = 0; time < 10; time++) {
        int connection = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connection, (void *)&there, sizeof there)) return perror("connect"), 4;
        ssize_t length = read(connection, answer, sizeof answer);
        if (length <= 0) return 5;
        close(connection);
        fwrite(answer, 1, length, stdout);
    }
    return 0;
}

/* Goes on until it is ended, and says how fast. */
static void beat(void)
{
    puts("rate: 999999");
    for (;;) {
        hit();
        printf("rate: %d\n", rate());
        fflush(stdout);
        usleep(1000);
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "serve")) return serve(argv[2]);
    if (!strcmp(mode, "ask")) return ask(argv[2]);
    if (!strcmp(mode, "beat")) beat();
    return 2;
}
