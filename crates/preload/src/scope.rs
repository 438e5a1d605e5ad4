//! This library's place in the order in which the dynamic linker searches for a symbol.
//!
//! That order is the program, what was preloaded, and what the program is linked with, as in the dynamic
//! linker's list of what is loaded; libraries opened later have scopes of their own, in which we are not. The
//! part of the list before us, which is all that is read here, was there when the program started, and stays.
//!
//! glibc answers a question with a version by the first library that has that version of the symbol, or that
//! knows no versions at all. We have none of glibc's versions, but are to be found for each of them. So the
//! question is whether glibc would find another library before it comes to us.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

/// What glibc tells about a loaded object: the beginning of its `struct link_map` (`<link.h>`).
#[repr(C)]
struct Object {
    /// What is added to the addresses in the file.
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const Object,
    previous: *const Object,
}

/// An entry of an object's dynamic section.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const DT_VERDEF: i64 = 0x6fff_fffc;

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

#[repr(C)]
struct Definition {
    version: u16,
    flags: u16,
    index: u16,
    count: u16,
    hash: u32,
    names: u32,
    next: u32,
}

/// Whether the search for this version of a symbol, from the beginning or from behind the library that
/// `after` lies in, comes to us before it finds another. Allocates nothing and takes no lock but the dynamic
/// linker's, as the question itself does.
pub(crate) fn leads_here(after: Option<*const c_void>, name: &CStr, version: &CStr) -> bool {
    let Some(own) = object_at(leads_here as *const c_void) else { return false };
    let start = match after {
        None => ptr::null(),
        Some(address) => match object_at(address) {
            None => return false,
            Some(object) => object,
        },
    };
    let mut object = own;
    loop {
        // SAFETY: objects of the list, of which none before us is ever unloaded.
        object = unsafe { (*object).previous };
        if object == start {
            return true;
        }
        // The caller is not before us, so we do not come after it. SAFETY: as above.
        if object.is_null() || unsafe { find(&*object, name, Some(version)).is_some() } {
            return false;
        }
    }
}

/// The next function of that name behind this library, with what stands for the object that has it. As
/// `dlsym(RTLD_NEXT, ...)`, for functions of which there is one version; but it never allocates, so it may be
/// asked within an allocator. What was opened later is behind glibc in the list, which has them all.
pub(crate) fn next(name: &CStr) -> Option<(*mut c_void, *const c_void)> {
    /// In `Symbol::info`'s lower half: a function that chooses one.
    const INDIRECT: u8 = 10;
    let mut object = object_at(next as *const c_void)?;
    loop {
        // SAFETY: objects of the list, of which none before glibc is ever unloaded.
        object = unsafe { (*object).next };
        if object.is_null() {
            return None;
        }
        // SAFETY: as above.
        let Some(symbol) = (unsafe { find(&*object, name, None) }) else { continue };
        // SAFETY: as above.
        let function = unsafe { (*object).base }.wrapping_add(symbol.value as usize);
        let function = ptr::with_exposed_provenance_mut(function);
        if symbol.info & 0xf != INDIRECT {
            return Some((function, object.cast()));
        }
        // SAFETY: what such a symbol names returns the function. (On aarch64 it is told about the processor, if
        // it asks; no allocator does.)
        let chosen =
            unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> *mut c_void>(function) }();
        return Some((chosen, object.cast()));
    }
}

fn object_at(address: *const c_void) -> Option<*const Object> {
    const LINK_MAP: libc::c_int = 2;
    unsafe extern "C" {
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *mut c_void,
            flags: libc::c_int,
        ) -> libc::c_int;
    }
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
    let mut found = ptr::null_mut();
    // SAFETY: fills our own variables.
    let known = unsafe { dladdr1(address, info.as_mut_ptr(), &mut found, LINK_MAP) } != 0;
    (known && !found.is_null()).then_some(found.cast_const().cast())
}

/// An object's symbol of this name, and of this version, as glibc judges it, if one is asked for.
///
/// # Safety
/// The object is one of the dynamic linker's, and loaded.
unsafe fn find(object: &Object, name: &CStr, version: Option<&CStr>) -> Option<&'static Symbol> {
    let entry = |tag| {
        let mut at = object.dynamic;
        // SAFETY: an object's dynamic section is an array that ends in a tag of 0.
        unsafe {
            while (*at).tag != tag {
                if (*at).tag == 0 {
                    return 0;
                }
                at = at.add(1);
            }
            // glibc has added the base to some, and not to others.
            if (*at).value < object.base { (*at).value + object.base } else { (*at).value }
        }
    };
    // Without dynamic symbols there is nothing to find.
    let (symbols, strings) = (entry(DT_SYMTAB) as *const Symbol, entry(DT_STRTAB) as *const c_char);
    if symbols.is_null() || strings.is_null() {
        return None;
    }
    let (versions, definitions) = (entry(DT_VERSYM) as *const u16, entry(DT_VERDEF) as *const Definition);
    let is_it = |index: u32| {
        /// What may be in `Symbol::info`'s upper half: global, weak, or one of GNU's.
        const BINDINGS: [u8; 3] = [1, 2, 10];
        // SAFETY: the hash tables hold indices of the symbol table, and of the table of versions beside it;
        // names are offsets of strings.
        unsafe {
            let symbol = &*symbols.add(index as usize);
            symbol.section != 0
                && symbol.value != 0
                && BINDINGS.contains(&(symbol.info >> 4))
                && CStr::from_ptr(strings.add(symbol.name as usize)) == name
                && (versions.is_null()
                    || version.is_none_or(|version| {
                        has_version(definitions, *versions.add(index as usize) & 0x7fff, strings, version)
                    }))
        }
    };
    // SAFETY: the object's tables, where it has them.
    unsafe {
        let index = match (entry(DT_GNU_HASH) as *const u32, entry(DT_HASH) as *const u32) {
            (table, _) if !table.is_null() => by_gnu_hash(table, name, is_it),
            (_, table) if !table.is_null() => by_hash(table, name, is_it),
            _ => None,
        };
        index.map(|index| &*symbols.add(index as usize))
    }
}

/// Whether that index of an object's versions is this one. The first two stand for none.
///
/// # Safety
/// The object's own tables.
unsafe fn has_version(
    definitions: *const Definition,
    index: u16,
    strings: *const c_char,
    version: &CStr,
) -> bool {
    let mut at = definitions;
    while index > 1 && !at.is_null() {
        // SAFETY: definitions are linked by offsets, and have one name at least, whose offset is its first
        // word.
        unsafe {
            if (*at).index == index {
                let name = *at.byte_add((*at).names as usize).cast::<u32>();
                return CStr::from_ptr(strings.add(name as usize)) == version;
            }
            at = if (*at).next == 0 { ptr::null() } else { at.byte_add((*at).next as usize) };
        }
    }
    false
}

/// The symbol with the hash of `name` of which `is_it` is true.
///
/// # Safety
/// `table` is an object's `DT_GNU_HASH`.
unsafe fn by_gnu_hash(table: *const u32, name: &CStr, is_it: impl Fn(u32) -> bool) -> Option<u32> {
    let hash =
        name.to_bytes().iter().fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
    // SAFETY: four words, a filter of 64-bit words, the buckets, and for each symbol from `first` on its
    // hash, whose lowest bit marks the last one of a bucket.
    unsafe {
        let [buckets, first, filter] = *table.cast::<[u32; 3]>();
        let bucket = table.add(4 + 2 * filter as usize);
        let chain = bucket.add(buckets as usize);
        let mut index = if buckets == 0 { 0 } else { *bucket.add((hash % buckets) as usize) };
        while index >= first && index != 0 {
            let other = *chain.add((index - first) as usize);
            if other | 1 == hash | 1 && is_it(index) {
                return Some(index);
            }
            index = if other & 1 == 1 { 0 } else { index + 1 };
        }
    }
    None
}

/// As [`by_gnu_hash`], of a `DT_HASH`.
///
/// # Safety
/// `table` is one.
unsafe fn by_hash(table: *const u32, name: &CStr, is_it: impl Fn(u32) -> bool) -> Option<u32> {
    let hash = name.to_bytes().iter().fold(0u32, |hash, &byte| {
        let next = (hash << 4).wrapping_add(byte.into());
        let top = next & 0xf000_0000;
        (next ^ top >> 24) & !top
    });
    // SAFETY: two counts, the buckets, and for each symbol the next one of its bucket, 0 after the last.
    unsafe {
        let [buckets, _] = *table.cast::<[u32; 2]>();
        let bucket = table.add(2);
        let chain = bucket.add(buckets as usize);
        let mut index = if buckets == 0 { 0 } else { *bucket.add((hash % buckets) as usize) };
        while index != 0 {
            if is_it(index) {
                return Some(index);
            }
            index = *chain.add(index as usize);
        }
    }
    None
}
