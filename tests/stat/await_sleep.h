#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
/* Waits until the thread whose id is there sleeps: seen so twice in a row, so that a sleep on the way to a lock
   is not taken for the wait. */
static void await_sleep(const int *of)
{
    for (int seen = 0; seen < 2; usleep(1000)) {
        char name[64], text[512] = "";
        snprintf(name, sizeof name, "/proc/self/task/%d/stat", __atomic_load_n(of, __ATOMIC_SEQ_CST));
        FILE *file = fopen(name, "r");
        const char *end = file && fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
        if (file) fclose(file);
        seen = end && end[2] == 'S' ? seen + 1 : 0;
    }
}
