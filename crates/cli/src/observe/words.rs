//! What the names of functions and types say: which wrap a lock, which make one.

/// Words of which one is in the name of a function that makes locks,
const MAKING: [&str; 9] =
    ["init", "new", "create", "make", "alloc", "allocate", "construct", "ctor", "setup"];
/// or that acquires them.
const ACQUIRING: [&str; 11] = [
    "lock",
    "unlock",
    "acquire",
    "enter",
    "leave",
    "release",
    "rdlock",
    "wrlock",
    "wait",
    "timedlock",
    "down",
];

/// Whether a function is one of Go's runtime that sleeps for its callers.
pub(crate) fn sleeps_in_go(function: &str) -> bool {
    const NAMES: [&str; 12] = [
        "futex",
        "futex.abi0",
        "futexsleep",
        "notesleep",
        "notetsleep_internal",
        "notetsleep",
        "notetsleepg",
        "mPark",
        "lock2",
        "lockWithRank",
        "lock",
        "mutexSleep",
    ];
    function.strip_prefix("runtime.").is_some_and(|name| NAMES.contains(&name))
}

/// Whether a function makes locks of a kind for others, going by its name.
pub(crate) fn makes_locks(function: &str) -> bool {
    wraps(function, &MAKING)
}

/// Whether a function acquires, awaits or releases locks for others, going by its name.
pub(crate) fn acquires(function: &str) -> bool {
    wraps(function, &ACQUIRING)
}

/// Whether a function makes objects, going by its name: a constructor, or one that says so.
pub(crate) fn makes_objects(function: &str) -> bool {
    let path = without_arguments(function);
    let mut parts = path.rsplit("::");
    let (last, before) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let before = before.split('<').next().unwrap_or_default();
    (!last.is_empty() && last == before) || words(last).iter().any(|word| MAKING.contains(&&**word))
}

/// Whether a function's name says that it does to a lock what one of these verbs says.
fn wraps(function: &str, verbs: &[&str]) -> bool {
    let path = without_arguments(function);
    let mut parts = path.rsplit("::");
    let last = parts.next().unwrap_or_default();
    let words_of_last = words(last);
    let says = words_of_last.iter().any(|word| verbs.contains(&&**word));
    // Of a method it may be the class that is named after a lock; a constructor is named as its class.
    let class = parts.next().unwrap_or_default();
    let is_lock = |words: &[String]| words.iter().any(|word| names_a_lock(word));
    if !class.is_empty() && class == last {
        return verbs.contains(&"ctor") && is_lock(&words_of_last);
    }
    says && (is_lock(&words_of_last) || is_lock(&words(class)))
}

/// The name without its parameters and what is in angle brackets at its end.
fn without_arguments(function: &str) -> &str {
    function.split(['(', ' ']).next().unwrap_or_default()
}

fn names_a_lock(word: &str) -> bool {
    const WORDS: [&str; 9] = ["rw", "sem", "cond", "cs", "thr", "thread", "sync", "cv", "monitor"];
    WORDS.contains(&word) || is_a_lock(word)
}

fn is_a_lock(word: &str) -> bool {
    const WORDS: [&str; 6] = ["mtx", "lck", "spin", "crit", "latch", "rwl"];
    WORDS.contains(&word)
        || word.contains("mutex")
        || (word.contains("lock") && !word.contains("block") && !word.contains("clock"))
}

/// Whether a type is made to be a lock, going by its name: locks of that type may be anything's.
pub(crate) fn is_lock_type(name: &str) -> bool {
    let name = name.split('<').next().unwrap_or_default();
    let last = name.rsplit("::").next().unwrap_or_default();
    words(last).iter().any(|word| is_a_lock(word))
}

/// `rw_pr_init` and `PR_NewLock` in words, small letters all.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("never empty").extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::{acquires, makes_locks, makes_objects};

    #[test]
    fn wrappers_are_known_by_their_names() {
        for name in [
            "rw_pr_init",
            "Lck__New",
            "uv_mutex_init",
            "CRYPTO_THREAD_lock_new",
            "ngx_thread_mutex_create",
            "inline_mysql_prlock_init",
            "PR_NewLock",
            "rocksdb::port::Mutex::Mutex(bool)",
            "apr_thread_mutex_create",
            "os::PlatformMonitor::PlatformMonitor()",
        ] {
            assert!(makes_locks(name), "{name}");
        }
        for name in
            ["sessions_create", "main", "block_init", "MDL_map::init", "Session::Session()", "worker", ""]
        {
            assert!(!makes_locks(name), "{name}");
        }
        assert!(
            makes_objects("Session::Session()") && makes_objects("sessions_create") && !makes_objects("work")
        );
        assert!(makes_objects("app::Store<long>::Store(long)"));
        for name in
            ["uv_mutex_lock", "rocksdb::port::Mutex::Lock()", "inline_mysql_mutex_lock", "sem_wait_all"]
        {
            assert!(acquires(name), "{name}");
        }
        for name in ["queue_take", "block_enter", "wait_for_it", "waiter"] {
            assert!(!acquires(name), "{name}");
        }
    }
}
