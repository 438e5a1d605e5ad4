//! Cycles in a graph of who waits for whom.

/// Cycles in a graph, each beginning at its lowest number. Of cycles that share a part, at least one.
pub(crate) fn cycles<T>(edges: &[Vec<(usize, T)>]) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut done = vec![false; edges.len()];
    for start in 0..edges.len() {
        // The path from `start`, and how many edges of each node on it were followed.
        let mut path: Vec<(usize, usize)> = vec![(start, 0)];
        while let Some(&mut (node, ref mut next)) = path.last_mut() {
            let Some((to, _)) = edges[node].get(*next).filter(|_| !done[node]) else {
                done[node] = true;
                path.pop();
                continue;
            };
            *next += 1;
            if let Some(from) = path.iter().position(|(on_path, _)| on_path == to) {
                let mut cycle: Vec<usize> = path[from..].iter().map(|(node, _)| *node).collect();
                let lowest = (0..cycle.len()).min_by_key(|&n| cycle[n]).unwrap_or(0);
                cycle.rotate_left(lowest);
                if !found.contains(&cycle) {
                    found.push(cycle);
                }
            } else if !done[*to] {
                path.push((*to, 0));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(edges: &[&[usize]]) -> Vec<Vec<usize>> {
        let edges: Vec<Vec<(usize, ())>> =
            edges.iter().map(|to| to.iter().map(|&to| (to, ())).collect()).collect();
        cycles(&edges)
    }

    #[test]
    fn cycles_are_found_once_and_chains_are_none() {
        assert_eq!(found(&[&[1], &[2], &[]]), Vec::<Vec<usize>>::new());
        assert_eq!(found(&[&[1], &[2], &[0]]), [[0, 1, 2]]);
        assert_eq!(found(&[&[2], &[2], &[1]]), [[1, 2]]);
        assert_eq!(found(&[&[0]]), [[0]]);
        assert_eq!(found(&[&[1], &[0], &[3], &[2]]), [[0, 1], [2, 3]]);
    }

    #[test]
    fn a_cycle_through_one_of_several_readers_is_found() {
        assert_eq!(found(&[&[1, 2], &[], &[0]]), [[0, 2]]);
        assert_eq!(found(&[&[1, 2], &[0], &[0]]), [vec![0, 1], vec![0, 2]]);
    }
}
