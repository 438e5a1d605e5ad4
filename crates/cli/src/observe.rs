//! What those share who watch a program: `stat`, `check` and `who`.

pub(crate) mod calls;
pub(crate) mod cycles;
pub(crate) mod file;
pub(crate) mod members;
pub(crate) mod place;
pub(crate) mod proc;
pub(crate) mod runtime;
pub(crate) mod scopes;
pub(crate) mod shorten;
pub(crate) mod strangers;
pub(crate) mod symbols;
pub(crate) mod variables;
pub(crate) mod words;
