//! What those share who watch a program that runs with our library: `stat` and `check`.

pub(crate) mod calls;
pub(crate) mod file;
pub(crate) mod members;
pub(crate) mod place;
pub(crate) mod proc;
pub(crate) mod symbols;
pub(crate) mod variables;
pub(crate) mod words;
