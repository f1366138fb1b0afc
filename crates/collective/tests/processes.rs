//! Groups of real processes: each rank is a fork of the test.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use carril_collective::{CollectiveError, Group, Op};
use nix::libc;

/// Lengths that are nothing, less than a line, odd, a chunk and its neighbours, and many chunks.
const LENGTHS: [usize; 8] = [0, 1, 7, 1000, 16_383, 16_384, 16_385, 300_001];

struct Rank {
    pid: i32,
    told: File,
}

/// Forks a process that joins the group as `rank` and tells what `act` returns, or its panic.
fn start(address: &str, rank: usize, act: impl FnOnce(Group) -> String) -> Rank {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors; checked.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: both were just made.
    let (told, tells) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    // SAFETY: the child runs `act` and leaves without returning.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        drop(told);
        let acted = catch_unwind(AssertUnwindSafe(|| act(Group::join(address, rank).expect("it joins"))));
        let words = acted.unwrap_or_else(|panic| match panic.downcast_ref::<String>() {
            Some(words) => format!("panic: {words}"),
            None => "panic".to_owned(),
        });
        let _ = File::from(tells).write_all(words.as_bytes());
        // SAFETY: nothing of the parent's is torn down in the child.
        unsafe { libc::_exit(0) };
    }
    drop(tells);
    Rank { pid, told: File::from(told) }
}

impl Rank {
    fn kill(&self) {
        // SAFETY: our child, which is not collected yet.
        assert_eq!(unsafe { libc::kill(self.pid, libc::SIGKILL) }, 0);
    }

    /// What it told, when it is gone.
    fn end(mut self) -> String {
        let mut words = String::new();
        self.told.read_to_string(&mut words).expect("it is text");
        // SAFETY: our child.
        assert_eq!(unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) }, self.pid);
        words
    }
}

/// What every rank of a new group tells.
fn all(world_size: usize, act: impl Fn(Group) -> String) -> Vec<String> {
    let offer = Group::offer(world_size).expect("there is memory");
    let address = offer.address();
    let ranks: Vec<Rank> = (0..world_size).map(|rank| start(&address, rank, &act)).collect();
    ranks.into_iter().map(Rank::end).collect()
}

fn everywhere(world_size: usize, act: impl Fn(&mut Group)) {
    let told = all(world_size, |mut group| {
        act(&mut group);
        "well".to_owned()
    });
    assert_eq!(told, vec!["well"; world_size]);
}

/// A value that shows whose it is, where it stood, and that rounding happened.
fn value(rank: usize, index: usize) -> f64 {
    (index % 1013) as f64 * 0.1 + (rank + 1) as f64 / 3.0
}

fn check_f32(group: &mut Group) {
    let (rank, ranks) = (group.rank(), group.world_size());
    let of = |rank: usize, length: usize| (0..length).map(|index| value(rank, index) as f32).collect::<Vec<_>>();
    for length in LENGTHS {
        let at = |rank: usize, index: usize| value(rank, index) as f32;
        let in_order = |index: usize, join: fn(f32, f32) -> f32| {
            (1..ranks).fold(at(0, index), |joined, rank| join(joined, at(rank, index)))
        };
        let sum = |index: usize| in_order(index, |a, b| a + b);
        let cases: [(Op, &dyn Fn(usize) -> f32); 4] = [
            (Op::Sum, &sum),
            (Op::Mean, &|index| sum(index) / ranks as f32),
            (Op::Max, &|index| in_order(index, f32::max)),
            (Op::ScaledSum, &|index| {
                let scale = (1.0 / ranks as f64) as f32;
                (1..ranks).fold(at(0, index) * scale, |joined, rank| joined + at(rank, index) * scale)
            }),
        ];
        for (op, expected) in cases {
            let mut own = of(rank, length);
            group.all_reduce(&mut own, op).expect("all reduce");
            for (index, value) in own.iter().enumerate() {
                assert_eq!(value.to_bits(), expected(index).to_bits(), "{op:?} of {length} at {index}");
            }
            let whole = of(rank, length * ranks);
            let mut part = vec![0.0; length];
            group.reduce_scatter(&whole, &mut part, op).expect("all scatter");
            for (index, value) in part.iter().enumerate() {
                assert_eq!(value.to_bits(), expected(rank * length + index).to_bits(), "{op:?} of {length} at {index}");
            }
        }
        let mut gathered = vec![0.0; length * ranks];
        group.all_gather(&of(rank, length), &mut gathered).expect("all gather");
        assert_eq!(gathered, (0..ranks).flat_map(|rank| of(rank, length)).collect::<Vec<_>>());
        for root in 0..ranks {
            let mut sent = of(rank, length);
            group.broadcast(&mut sent, root).expect("the root sends");
            assert_eq!(sent, of(root, length));
        }
        group.barrier().expect("all come");
    }
}

#[test]
fn every_operation_gives_every_rank_the_same_bits_in_the_order_of_the_ranks() {
    for world_size in [1, 2, 3] {
        everywhere(world_size, check_f32);
    }
}

#[test]
fn more_ranks_than_cores_come_to_the_same() {
    everywhere(6, check_f32);
}

#[test]
fn doubles_and_integers_are_reduced_as_well() {
    everywhere(3, |group| {
        let rank = group.rank();
        let mut doubles: Vec<f64> = (0..20_001).map(|index| value(rank, index)).collect();
        group.all_reduce(&mut doubles, Op::Sum).expect("all reduce");
        assert!((0..20_001).all(|at| doubles[at] == value(0, at) + value(1, at) + value(2, at)));
        let mut integers = vec![i64::MAX - 1, rank as i64];
        group.all_reduce(&mut integers, Op::Max).expect("all reduce");
        assert_eq!(integers, [i64::MAX - 1, 2]);
        group.all_reduce(&mut integers, Op::Sum).expect("integers go round");
        assert_eq!(integers, [(i64::MAX - 1).wrapping_mul(3), 6]);
        let refused = group.all_reduce(&mut integers, Op::Mean);
        assert!(matches!(refused, Err(CollectiveError::MeanOfIntegers { .. })));
        // It was refused before anybody waited.
        group.barrier().expect("the group is as it was");
    });
}

#[test]
fn what_is_not_a_number_is_the_greatest() {
    everywhere(3, |group| {
        let mut values = [1.0, 2.0, 3.0f32];
        values[group.rank()] = f32::NAN;
        group.all_reduce(&mut values, Op::Max).expect("all reduce");
        assert!(values.iter().all(|value| value.is_nan()));
    });
}

#[test]
fn a_killed_rank_is_named_to_all_others_at_once() {
    // At different moments of the operation, and with sizes that take one step and many.
    for round in 0..12 {
        let length = if round % 2 == 0 { 100 } else { 500_000 };
        let (offer, began) = (Group::offer(3).expect("there is memory"), Shared::new());
        let address = offer.address();
        let turn = |mut group: Group| {
            let mut values = vec![1.0f32; length];
            let error = loop {
                match group.all_reduce(&mut values, Op::Max) {
                    Ok(()) => began.add(),
                    Err(error) => break error,
                }
            };
            let noticed = now();
            let again = group.barrier().expect_err("the group stays broken");
            format!("{error}|{again}|{noticed}")
        };
        let [first, victim, last] = [0, 1, 2].map(|rank| start(&address, rank, turn));
        until(|| began.count() > 20 + round);
        let (killed, pid) = (now(), victim.pid);
        victim.kill();
        for told in [first, last].map(Rank::end) {
            let [error, again, noticed] = told.split('|').collect::<Vec<_>>()[..] else { panic!("{told}") };
            assert_eq!(error, format!("rank 1 (pid {pid}) died during all_reduce"));
            assert_eq!(again, format!("rank 1 (pid {pid}) died during barrier"));
            let after = noticed.parse::<u128>().expect("a time") - killed;
            assert!(after < Duration::from_millis(500).as_micros(), "noticed after {after} µs");
        }
        assert_eq!(victim.end(), "");
    }
}

#[test]
fn a_rank_that_ends_in_order_is_no_death_for_those_who_have_all_they_need() {
    // Many times, so that ranks end while others are still collecting.
    for _ in 0..30 {
        everywhere(3, |group| {
            let mut values = vec![1.0f32; 50_000];
            group.all_reduce(&mut values, Op::Sum).expect("all reduce");
            assert!(values.iter().all(|value| *value == 3.0));
        });
    }
}

#[test]
fn a_rank_that_leaves_is_named() {
    let told = all(2, |mut group| {
        group.barrier().expect("all come");
        if group.rank() == 1 {
            return "left".to_owned();
        }
        group.barrier().expect_err("nobody comes").to_string()
    });
    assert!(told[0].starts_with("rank 1 (pid "), "{}", told[0]);
    assert!(told[0].ends_with(") left the group, and barrier waits for it"), "{}", told[0]);
}

#[test]
fn ranks_that_disagree_are_told_what_each_asked_for() {
    type Act = fn(&mut Group, usize) -> Result<(), CollectiveError>;
    let cases: [(Act, &str); 5] = [
        (
            |group, rank| group.all_reduce(&mut vec![0.0f32; if rank == 1 { 70_000 } else { 5 }], Op::Sum),
            "ranks 0, 2 asked for all_reduce (sum) of 5 f32; rank 1 asked for all_reduce (sum) of 70000 f32",
        ),
        (
            |group, rank| group.all_reduce(&mut [0.0f32; 4], if rank == 2 { Op::Max } else { Op::Sum }),
            "ranks 0, 1 asked for all_reduce (sum) of 4 f32; rank 2 asked for all_reduce (max) of 4 f32",
        ),
        (
            |group, rank| match rank {
                0 => group.all_reduce(&mut [0.0f64; 4], Op::Sum),
                _ => group.all_reduce(&mut [0.0f32; 4], Op::Sum),
            },
            "rank 0 asked for all_reduce (sum) of 4 f64; ranks 1, 2 asked for all_reduce (sum) of 4 f32",
        ),
        (
            |group, rank| group.broadcast(&mut [0i64; 4], rank),
            "rank 0 asked for broadcast of 4 i64 from rank 0; rank 1 asked for broadcast of 4 i64 from rank 1; \
             rank 2 asked for broadcast of 4 i64 from rank 2",
        ),
        (
            |group, rank| match rank {
                0 => group.barrier(),
                1 => group.all_gather(&[0.0f32; 2], &mut [0.0; 6]),
                _ => group.reduce_scatter(&[0.0f32; 6], &mut [0.0; 2], Op::Mean),
            },
            "rank 0 asked for barrier; rank 1 asked for all_gather of 2 f32; \
             rank 2 asked for reduce_scatter (mean) of 6 f32",
        ),
    ];
    for (act, expected) in cases {
        let told = all(3, |mut group| {
            let rank = group.rank();
            act(&mut group, rank).expect_err("they disagree").to_string()
        });
        assert_eq!(told, vec![format!("the ranks disagree: {expected}"); 3]);
    }
}

#[test]
fn a_wait_ends_at_its_deadline_and_says_who_is_missing() {
    let offer = Group::offer(3).expect("there is memory");
    let address = offer.address();
    let waits = |mut group: Group| {
        group.set_timeout(Duration::from_millis(50));
        group.all_gather(&[1.0f32], &mut [0.0; 3]).expect_err("one never joins").to_string()
    };
    let (first, second) = (start(&address, 0, waits), start(&address, 2, waits));
    let pids = [first.pid, second.pid];
    let told = [first.end(), second.end()];
    let gave_up = |who: usize| format!("rank {} (pid {}) gave up, and all_gather waits for it", who * 2, pids[who]);
    let missing = "all_gather waited 0.05 s for rank 1 (not joined)";
    assert!(told.iter().any(|words| words == missing), "{told:?}");
    assert!(told.iter().enumerate().all(|(who, words)| words == missing || *words == gave_up(1 - who)), "{told:?}");
}

#[test]
fn a_wait_can_be_interrupted() {
    let mut group = Group::offer(2).and_then(|offer| offer.join(0)).expect("there is memory");
    group.set_interrupt(|| true);
    assert!(matches!(group.barrier(), Err(CollectiveError::Interrupted { during: "barrier" })));
}

#[test]
fn addresses_that_lead_nowhere_are_refused() {
    let offer = Group::offer(2).expect("there is memory");
    let address = offer.address();
    let [pid, descriptor, started] = address.split(':').collect::<Vec<_>>()[..] else { panic!("{address}") };
    let other = File::options().read(true).write(true).open("/proc/self/comm").expect("there is /proc");
    let number = std::os::fd::AsRawFd::as_raw_fd(&other);
    for (address, reason) in [
        ("nonsense".to_owned(), "it is not `pid:fd:start time`"),
        (format!("{pid}:{descriptor}:1"), "the process that made it is gone"),
        (format!("{pid}:{number}:{started}"), "what lies there is no group of this version"),
    ] {
        let refused = Group::join(&address, 0).err().expect("it is refused").to_string();
        assert!(refused.contains(reason), "{refused}");
    }
    let taken = Group::join(&address, 1).expect("it is there");
    let refused = Group::join(&address, 1).err().expect("it is taken").to_string();
    assert_eq!(refused, format!("rank 1 of the group has been taken by pid {pid}"));
    drop(taken);
    let refused = Group::join(&address, 2).err().expect("there are two").to_string();
    assert_eq!(refused, "rank 2 is not in a group of 2");
    let mut alone = Group::offer(1).and_then(|offer| offer.join(0)).expect("there is memory");
    let refused = alone.all_gather(&[1.0f32], &mut [0.0; 2]).expect_err("it is too long").to_string();
    assert_eq!(refused, "all_gather was given 2 values where 1 belong");
}

#[test]
fn nothing_is_left_behind() {
    let told = all(2, |mut group| {
        group.barrier().expect("all come");
        let with = ours();
        drop(group);
        // A mapping and a descriptor. The fork has what other tests of this process have open, too.
        format!("{}", with - ours())
    });
    assert_eq!(told, ["2", "2"]);
    let named = std::fs::read_dir("/dev/shm").map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().contains("carril-collective")).count()
    });
    assert_eq!(named, 0);
}

/// How many mappings of and descriptors for a group's memory this process has.
fn ours() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there is /proc");
    let mapped = maps.lines().filter(|line| line.contains("carril-collective")).count();
    let open = std::fs::read_dir("/proc/self/fd").expect("there is /proc").flatten();
    let open = open.filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|path| path.to_string_lossy().contains("carril-collective"))
    });
    mapped + open.count()
}

/// A counter that forks share.
struct Shared(*const AtomicUsize);

impl Shared {
    fn new() -> Self {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, zeroed, which stays for as long as the process.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        Self(page.cast())
    }

    fn add(&self) {
        // SAFETY: mapped in every fork.
        unsafe { &*self.0 }.fetch_add(1, SeqCst);
    }

    fn count(&self) -> usize {
        // SAFETY: mapped.
        unsafe { &*self.0 }.load(SeqCst)
    }
}

fn now() -> u128 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one time. The clock is the same in all processes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u128 * 1_000_000 + time.tv_nsec as u128 / 1000
}

fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "it did not come to that in 20 s");
        std::thread::yield_now();
    }
}
