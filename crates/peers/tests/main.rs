//! Every lock that is there, and what is made of packages that are not.

mod left_out;
mod locks;
