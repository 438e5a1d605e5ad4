use poundlock_statfile::{Live, Log};
fn main() {
    for path in std::env::args().skip(1) {
        let mut live = Live::open(path.as_ref()).unwrap();
        println!("{path} {} checked {}", live.exe(), live.is_checked());
        let modules = live.modules();
        let name = |pc: u64| modules.iter().rev().find(|m| m.start <= pc && pc < m.end)
            .map_or(format!("{pc:#x}"), |m| format!("{}+{:#x}", m.path.rsplit('/').next().unwrap(), pc - m.start + m.offset));
        let mut log = Log::default(); log.skip_torn = true;
        let mut all = vec![];
        live.events(&mut log, &mut |e| all.push(e));
        for e in all {
            print!("{} tid {} {:x?}\n  ", e.moment, e.tid, e.locks);
            match &e.event {
                poundlock_statfile::check::Event::Edge(e) => println!("EDGE {:?} {:?}->{:?} guards {:?}\n   from {:?}\n   to {:?}", e.thread, e.from.held, e.to.held, e.guards,
                    e.from.stack.iter().map(|p| name(*p)).collect::<Vec<_>>(), e.to.stack.iter().map(|p| name(*p)).collect::<Vec<_>>()),
                poundlock_statfile::check::Event::Misuse(m) => println!("{:?} {:?} {:?}\n   here {:?}\n   other {:?}", m.what, m.thread, m.other_thread,
                    m.stack.iter().map(|p| name(*p)).collect::<Vec<_>>(), m.other_stack.iter().map(|p| name(*p)).collect::<Vec<_>>()),
                other => println!("{other:?}"),
            }
        }
        println!("{:?}", live.unseen());
        let mut threads = vec![];
        live.look(&mut threads);
        for t in threads { println!("thread {:?} {:?} holds {:?}", live.serial(t.record), t.wait, live.holds(t.record)); }
    }
}
