// A plugin with two mutexes: see unload.c.
#include <poundlock.h>

static poundlock_mutex_t mutexes[2] = {POUNDLOCK_MUTEX_INITIALIZER, POUNDLOCK_MUTEX_INITIALIZER};

void plugin_lock(int which);
void plugin_unlock(int which);

void plugin_lock(int which) { poundlock_mutex_lock(&mutexes[which]); }
void plugin_unlock(int which) { poundlock_mutex_unlock(&mutexes[which]); }
