//! What the groups on this node use of it: CPU, memory, devices. Looked at every two seconds, and only while something trains.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use carril_process::sessions;
use carril_proto::v1;
use carril_types::WorkerKey;

use crate::agent::Measured;
use crate::serve::AgentHandle;

const EVERY: Duration = Duration::from_secs(2);

/// Looks as long as the agent is there.
pub(crate) async fn keep_measuring(agent: AgentHandle) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut meter = Meter::default();
    loop {
        ticks.tick().await;
        let Ok(groups) = agent.ask(|agent| agent.groups()).await else { return };
        if groups.is_empty() {
            meter = Meter::default();
            continue;
        }
        let measured = tokio::task::spawn_blocking(move || {
            let usages = meter.measure(&groups);
            (meter, usages)
        });
        let Ok((back, usages)) = measured.await else { return };
        meter = back;
        for (key, usage) in usages {
            agent.tell(move |agent| agent.on_usage(key, usage));
        }
    }
}

/// Remembers what was used until the last look: the kernel counts from the beginning of a process.
#[derive(Default)]
struct Meter {
    last: BTreeMap<WorkerKey, (Instant, Duration)>,
}

impl Meter {
    fn measure(&mut self, groups: &[Measured]) -> Vec<(WorkerKey, v1::Usage)> {
        let all: BTreeSet<u32> = groups.iter().flat_map(|group| group.pids.iter().copied()).collect();
        let used = sessions(&all);
        let devices = if groups.iter().any(|group| !group.devices.is_empty()) { devices() } else { BTreeMap::new() };
        let now = Instant::now();
        let mut last = BTreeMap::new();
        let mut usages = Vec::new();
        for group in groups {
            let own: Vec<_> = group.pids.iter().filter_map(|pid| used.get(pid)).collect();
            let time: Duration = own.iter().map(|one| one.time).sum();
            let before = self.last.get(&group.key);
            last.insert(group.key.clone(), (now, time));
            // The first look has nothing to compare with.
            let Some((at, earlier)) = before else { continue };
            let cpus = time.saturating_sub(*earlier).as_secs_f64() / (now - *at).as_secs_f64().max(0.1);
            let given: BTreeSet<&String> = group.devices.iter().collect();
            let given: Vec<&(f64, u64)> = given.into_iter().filter_map(|device| devices.get(device)).collect();
            usages.push((
                group.key.clone(),
                v1::Usage {
                    cpus,
                    memory: own.iter().map(|one| one.memory).sum(),
                    gpus: given.len() as u32,
                    gpu_percent: given.iter().map(|(percent, _)| percent).sum::<f64>() / given.len().max(1) as f64,
                    gpu_memory: given.iter().map(|(_, memory)| memory).sum(),
                },
            ));
        }
        self.last = last;
        usages
    }
}

/// How busy each device is, in percent, and the bytes in use on it, by its number. Nothing where nobody can be asked.
fn devices() -> BTreeMap<String, (f64, u64)> {
    let query = ["--query-gpu=index,uuid,utilization.gpu,memory.used", "--format=csv,noheader,nounits"];
    let Ok(answer) = Command::new("nvidia-smi").args(query).output() else { return BTreeMap::new() };
    parse_devices(&String::from_utf8_lossy(&answer.stdout))
}

fn parse_devices(text: &str) -> BTreeMap<String, (f64, u64)> {
    let mut devices = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [index, uuid, percent, memory] = fields[..] else { continue };
        let (Ok(percent), Ok(memory)) = (percent.parse::<f64>(), memory.parse::<u64>()) else { continue };
        // Devices are given by their number or by their name.
        devices.insert(index.to_owned(), (percent, memory << 20));
        devices.insert(uuid.to_owned(), (percent, memory << 20));
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_printed() {
        let text = "0, GPU-1a, 45, 3072\n1, GPU-2b, [N/A], 10\n\n2, GPU-3c, 0, 0\n";
        let devices = parse_devices(text);
        assert_eq!(devices.get("0"), Some(&(45.0, 3 << 30)));
        assert_eq!(devices.get("GPU-3c"), Some(&(0.0, 0)));
        assert_eq!(devices.get("1"), None);
    }

    #[test]
    fn a_group_that_computes_uses_a_cpu() {
        // A session of its own: what is counted is counted by sessions.
        let session = nix::unistd::getsid(None).unwrap().as_raw() as u32;
        let key: WorkerKey = "run/0/0".parse().unwrap();
        let group = [Measured { key: key.clone(), pids: vec![session], devices: Vec::new() }];
        let mut meter = Meter::default();
        assert!(meter.measure(&group).is_empty(), "the first look has nothing to compare with");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(300) {
            std::hint::black_box(begin.elapsed());
        }
        let [(measured, usage)] = &meter.measure(&group)[..] else { panic!("one group is measured") };
        assert_eq!(measured, &key);
        assert!(usage.cpus > 0.0 && usage.memory > 0, "{usage:?}");
    }
}
