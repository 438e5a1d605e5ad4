//! Locks of packages in C and C++.

use crate::shim::Shim;
use crate::{Entry, built, rw};

static ABSEIL: Shim = Shim::new(built::ABSEIL);
static NSYNC: Shim = Shim::new(built::NSYNC);
static ONETBB: Shim = Shim::new(built::ONETBB);
static CK: Shim = Shim::new(built::CK);

pub(crate) fn entries() -> [Entry; 9] {
    [
        Entry::new("abseil", "Abseil's absl::Mutex, its deadlock detection off", || ABSEIL.peer(c"abseil")),
        Entry::new("nsync", "nsync's nsync_mu", || NSYNC.peer(c"nsync")),
        Entry::new("onetbb", "oneTBB's tbb::mutex: spins, then sleeps", || ONETBB.peer(c"onetbb")),
        Entry::new("onetbb-queuing", "oneTBB's tbb::queuing_mutex: an MCS queue of spinners", || {
            ONETBB.peer(c"onetbb-queuing")
        })
        .spinning(),
        Entry::new("onetbb-spin", "oneTBB's tbb::spin_mutex: a byte, back-off that yields", || {
            ONETBB.peer(c"onetbb-spin")
        })
        .spinning(),
        Entry::new("ck-mcs", "Concurrency Kit's MCS lock", || CK.peer(c"ck-mcs")).spinning(),
        Entry::new("ck-clh", "Concurrency Kit's CLH lock", || CK.peer(c"ck-clh")).spinning(),
        Entry::new("ck-ticket", "Concurrency Kit's ticket lock", || CK.peer(c"ck-ticket")).spinning(),
        Entry::new(
            "ck-cohort",
            "Concurrency Kit's cohort lock: a ticket lock for each NUMA node and one above them",
            || CK.peer(c"ck-cohort"),
        )
        .spinning(),
    ]
}

pub(crate) fn rw_entries() -> [Entry<rw::Calls>; 8] {
    [
        Entry::new("abseil", "Abseil's absl::Mutex with ReaderLock, its deadlock detection off", || {
            ABSEIL.rw_peer(c"abseil")
        }),
        Entry::new("nsync", "nsync's nsync_mu with nsync_mu_rlock", || NSYNC.rw_peer(c"nsync")),
        Entry::new("onetbb", "oneTBB's tbb::rw_mutex: spins, then sleeps; writers go first", || {
            ONETBB.rw_peer(c"onetbb")
        }),
        Entry::new("onetbb-queuing", "oneTBB's tbb::queuing_rw_mutex: a queue of spinners, in order", || {
            ONETBB.rw_peer(c"onetbb-queuing")
        })
        .spinning(),
        Entry::new("onetbb-spin", "oneTBB's tbb::spin_rw_mutex: a word, back-off that yields", || {
            ONETBB.rw_peer(c"onetbb-spin")
        })
        .spinning(),
        Entry::new("ck-rwlock", "Concurrency Kit's ck_rwlock: writers go first", || CK.rw_peer(c"ck-rwlock"))
            .spinning(),
        Entry::new("ck-pflock", "Concurrency Kit's ck_pflock: phase-fair, of tickets", || {
            CK.rw_peer(c"ck-pflock")
        })
        .spinning(),
        Entry::new("ck-tflock", "Concurrency Kit's ck_tflock_ticket: task-fair, of tickets", || {
            CK.rw_peer(c"ck-tflock")
        })
        .spinning(),
    ]
}
