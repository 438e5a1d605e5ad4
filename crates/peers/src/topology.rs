//! Which CPUs are near each other: the machine's NUMA nodes, from what the kernel says of them in files.

use std::fs;
use std::path::Path;

/// Which NUMA node each CPU belongs to. Nodes are counted from 0 and have CPUs, whatever the kernel calls
/// them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    /// How many; at least 1.
    pub(crate) nodes: u32,
    /// By CPU. One that is not listed is taken for one of node 0: that costs time, never correctness.
    pub(crate) node_of_cpu: Vec<u32>,
}

impl Topology {
    /// This machine's.
    pub(crate) fn of_this_machine() -> Topology {
        Self::read(Path::new("/sys/devices/system/node"))
    }

    /// As `/sys/devices/system/node` lists it in `node*/cpulist`; one node if it is not there.
    pub(crate) fn read(root: &Path) -> Topology {
        let mut found: Vec<(u32, Vec<usize>)> = fs::read_dir(root)
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
                let cpus = cpu_list(&fs::read_to_string(entry.path().join("cpulist")).ok()?)?;
                Some((number, cpus))
            })
            .filter(|(_, cpus)| !cpus.is_empty())
            .collect();
        found.sort_unstable();
        let cpus = found.iter().flat_map(|(_, cpus)| cpus).max().map_or(0, |last| last + 1);
        let mut node_of_cpu = vec![0; cpus];
        for (node, (_, cpus)) in (0..).zip(&found) {
            for &cpu in cpus {
                node_of_cpu[cpu] = node;
            }
        }
        Topology { nodes: (found.len() as u32).max(1), node_of_cpu }
    }
}

/// CPUs as the kernel lists them: `0-3,8,10-11`. `None` if it is no such list.
fn cpu_list(text: &str) -> Option<Vec<usize>> {
    /// More than Linux has: what is beyond is no list of CPUs.
    const MOST: usize = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(nodes: &[(&str, &str)]) -> Topology {
        let root = tempfile::tempdir().unwrap();
        for (node, cpus) in nodes {
            fs::create_dir(root.path().join(node)).unwrap();
            fs::write(root.path().join(node).join("cpulist"), cpus).unwrap();
        }
        Topology::read(root.path())
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpu_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(cpu_list("\n"), Some(vec![]));
        assert_eq!(cpu_list("0-x"), None);
        assert_eq!(cpu_list("0-4294967295"), None);
    }

    #[test]
    fn nodes_with_cpus_are_counted_and_others_are_not() {
        let two = tree(&[("node8", "1,3\n"), ("node0", "0,2\n"), ("node1", "\n"), ("power", "7\n")]);
        assert_eq!(two, Topology { nodes: 2, node_of_cpu: vec![0, 1, 0, 1] });
        // By number, not by text: 10 comes after 8.
        let three = tree(&[("node10", "2\n"), ("node8", "1\n"), ("node2", "0\n")]);
        assert_eq!(three, Topology { nodes: 3, node_of_cpu: vec![0, 1, 2] });
    }

    #[test]
    fn a_machine_that_says_nothing_has_one_node() {
        let one = Topology { nodes: 1, node_of_cpu: vec![] };
        assert_eq!(Topology::read(Path::new("/no/such/directory")), one);
        assert_eq!(tree(&[]), one);
        assert_eq!(tree(&[("node0", "rubbish\n")]), one);
    }

    #[test]
    fn this_machine_has_a_node() {
        assert!(Topology::of_this_machine().nodes >= 1);
    }
}
