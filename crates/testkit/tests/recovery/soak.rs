//! Kill after kill in one run, at random times: of random ranks, and of the head.
//!
//! The seed of a failing run is printed; `CARRIL_SEED` plays its choices again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use carril_proto::v1::run_event::Kind;
use carril_testkit::{Fixture, RunEnd};
use carril_types::RunSpec;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::evidence::{assert_contiguous, assert_nothing_left, starts, undisturbed, weights};
use crate::lost_head::replace;
use crate::{Fault, allowing, fixture, training};

const STEPS: u64 = 40;
/// A group lives for less than this.
const LONGEST_LIFE_MS: u64 = 400;

/// How many kills there are, and what chooses them.
fn plan(long: u32, short: u32) -> (u32, Random) {
    let kills = if std::env::var_os("CARRIL_LONG").is_some() { long } else { short };
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("CARRIL_SEED").map_or(fresh, |seed| seed.parse().expect("a seed is a number"));
    println!("CARRIL_SEED={seed}");
    (kills, Random(seed))
}

/// A training whose last step waits for the last kill: none comes too late. Few of its checkpoints are kept.
fn endless(fixture: &Fixture) -> (RunSpec, Fault) {
    let gate = Fault::new(fixture, "gate", "pause", 0, "code", STEPS - 1).in_attempt(None);
    let mut spec = training(fixture, STEPS, &[&gate]);
    spec.failures = allowing(0, -1);
    spec.num_to_keep = Some(2);
    (spec, gate)
}

fn check(end: &RunEnd, expected: &[String]) {
    assert_eq!(end.ended.status, "finished", "{end:#?}");
    let begun = starts(end, 0);
    assert!(begun.windows(2).all(|pair| pair[0] <= pair[1]), "it never goes back: {begun:?}");
    assert_contiguous(&end.path, &begun, STEPS);
    assert_eq!(end.ended.checkpoints.len(), 2, "{end:#?}");
    assert_eq!(weights(end), expected);
}

#[tokio::test]
async fn random_kills_of_workers_change_no_bit() {
    let (kills, mut random) = plan(100, 10);
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let (spec, gate) = endless(&fixture);
    let reply = fixture.submit(&spec).await.unwrap();
    let mut made = 0;
    let end = fixture
        .follow(&reply, |event| {
            let Kind::Started(started) = event else { return };
            if made == kills {
                return gate.go();
            }
            made += 1;
            let victim = &started.workers[random.below(started.workers.len() as u64) as usize];
            let pid = Pid::from_raw(victim.pid as i32);
            let after = Duration::from_millis(random.below(LONGEST_LIFE_MS));
            println!("kill {made}: rank {} after {after:?}", victim.rank);
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                kill(pid, Signal::SIGKILL).expect("a group lives until it is killed");
            });
        })
        .await;
    assert_eq!(end.restarts.len(), kills as usize, "{:#?}", end.restarts);
    assert!(end.restarts.iter().all(|restart| restart.code == "worker-killed"), "{:#?}", end.restarts);
    check(&end, &expected);
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
}

#[tokio::test]
async fn random_kills_of_the_head_change_no_bit() {
    let (kills, mut random) = plan(50, 5);
    let mut fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let (mut spec, gate) = endless(&fixture);
    let mut reply = fixture.submit(&spec).await.unwrap();
    for number in 1..=kills {
        let after = Duration::from_millis(random.below(LONGEST_LIFE_MS));
        println!("kill {number}: the head after {after:?}");
        tokio::time::sleep(after).await;
        fixture = replace(fixture, 16.0).await;
        spec.continues = Some(reply.run_id);
        reply = fixture.submit(&spec).await.unwrap();
    }
    gate.go();
    let end = fixture.follow(&reply, |_| {}).await;
    let lost = end.ended.restarts.iter().filter(|restart| restart.code == "head-lost").count();
    assert_eq!((lost, end.ended.restarts.len()), (kills as usize, kills as usize), "{:#?}", end.ended.restarts);
    check(&end, &expected);
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
}

/// Small, and the same everywhere for one seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % bound
    }
}
