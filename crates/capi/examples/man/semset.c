#include <poundlock.h>

/* Four permits, which come back if their holder is killed. */
int with_permit(void (*work)(void)) {
    const uint16_t four[] = {4};
    int id, error = poundlock_semset_open_or_create(&id, 0x706c, four, 1);
    if (error)
        return error;
    poundlock_semset_op_t take = {0, -1, POUNDLOCK_SEMSET_UNDO};
    poundlock_semset_op_t give = {0, 1, POUNDLOCK_SEMSET_UNDO};
    error = poundlock_semset_operate(id, &take, 1);
    if (error)
        return error;
    work();
    return poundlock_semset_operate(id, &give, 1);
}
