// A child that runs another program with an environment that is empty, and reads standard input to its end.
int main(void) {
    pid_t child = fork();
    SYS(child);
    if (child == 0) {
        char *argv[] = {"cat", NULL}, *environment[] = {NULL};
        execve("/bin/cat", argv, environment);
        FAIL("execve: %s", strerror(errno));
    }
    await_child(child);
    return 0;
}
