//! What this node has to give: by the affinity mask and the cgroup, not by what the host has.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use carril_types::{ResourceError, Resources};

/// What was asked for instead of what was found.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    pub cpus: Option<f64>,
    pub gpus: Option<f64>,
    pub custom: Vec<(String, f64)>,
}

/// The node's resources and the names of its devices.
pub fn node_resources(limits: &Limits, devices: &[String]) -> Result<(Resources, Vec<String>), ResourceError> {
    let cpus = limits.cpus.unwrap_or_else(|| available_cpus(affinity(), cpu_quota(Path::new("/sys/fs/cgroup"))));
    let memory = available_memory(Path::new("/sys/fs/cgroup"), Path::new("/proc/meminfo"));
    let gpus = limits.gpus.unwrap_or(devices.len() as f64);
    let wanted = gpus.ceil() as usize;
    let mut devices: Vec<String> = devices.iter().take(wanted).cloned().collect();
    // More were declared than are seen: they get the numbers that are free.
    let mut number = 0;
    while devices.len() < wanted {
        if !devices.contains(&number.to_string()) {
            devices.push(number.to_string());
        }
        number += 1;
    }
    let mut amounts = vec![("CPU", cpus), ("GPU", gpus), ("memory", memory as f64)];
    amounts.extend(limits.custom.iter().map(|(name, amount)| (name.as_str(), *amount)));
    Ok((Resources::from_amounts(amounts)?, devices))
}

/// A quota below the mask counts, rounded up: half a CPU still runs a worker.
fn available_cpus(mask: usize, quota: Option<f64>) -> f64 {
    let mask = mask.max(1) as f64;
    quota.map_or(mask, |quota| quota.ceil().clamp(1.0, mask))
}

fn affinity() -> usize {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0));
    set.map_or(1, |set| (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).count())
}

/// The directories of this process's cgroup and of its parents, nearest first, for a controller of v1 or for v2.
fn cgroups(root: &Path, controller: &str) -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(names), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let base = match names {
            "" => root.to_owned(),
            names if names.split(',').any(|name| name == controller) => root.join(controller),
            _ => continue,
        };
        let own = base.join(path.trim_start_matches('/'));
        // Inside a container the own path may not exist below the mount: the mount is then the cgroup.
        found.extend(own.ancestors().take_while(|path| path.starts_with(&base)).map(Path::to_owned));
    }
    found
}

fn cpu_quota(root: &Path) -> Option<f64> {
    cgroups(root, "cpu").iter().filter_map(|directory| quota_in(directory)).reduce(f64::min)
}

fn quota_in(directory: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    if let Some(text) = read("cpu.max") {
        let (quota, period) = text.trim().split_once(' ')?;
        return Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?);
    }
    let quota: f64 = read("cpu.cfs_quota_us")?.trim().parse().ok()?;
    let period: f64 = read("cpu.cfs_period_us")?.trim().parse().ok()?;
    (quota > 0.0).then_some(quota / period)
}

fn available_memory(root: &Path, meminfo: &Path) -> u64 {
    let host = fs::read_to_string(meminfo)
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .unwrap_or(0)
        * 1024;
    let limit = cgroups(root, "memory")
        .iter()
        .flat_map(|directory| ["memory.max", "memory.limit_in_bytes"].map(|name| directory.join(name)))
        .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
        .min();
    limit.map_or(host, |limit| limit.min(host))
}

/// Where the kernel counts the processes that it has ended: looked for once, since it is read at every start of a worker.
static COUNTER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// How many processes the kernel has ended in the nearest cgroup that counts them, and which that is.
pub(crate) fn memory_kills() -> Option<(u64, PathBuf)> {
    let count_in = |file: &Path| {
        let text = fs::read_to_string(file).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
    };
    let mut known = COUNTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((count, file)) = known.as_ref().and_then(|file| Some((count_in(file)?, file))) {
        return Some((count, file.parent()?.to_owned()));
    }
    let (count, file) = cgroups(Path::new("/sys/fs/cgroup"), "memory").into_iter().find_map(|directory| {
        let files = ["memory.events", "memory.oom_control"].map(|name| directory.join(name));
        files.into_iter().find_map(|file| Some((count_in(&file)?, file)))
    })?;
    let directory = file.parent()?.to_owned();
    *known = Some(file);
    Some((count, directory))
}

/// What the limit of that cgroup is.
pub(crate) fn memory_limit() -> String {
    memory_kills().map_or_else(String::new, |(count, directory)| describe_limit(&directory, count))
}

fn describe_limit(directory: &Path, count: u64) -> String {
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
    let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / (1u64 << 30) as f64);
    let limit = read("memory.max").or_else(|| read("memory.limit_in_bytes")).filter(|limit| *limit < 1 << 60);
    let peak = read("memory.peak").or_else(|| read("memory.max_usage_in_bytes"));
    let limit = limit.map_or_else(|| "no limit of its own".to_owned(), |limit| format!("a limit of {}", gib(limit)));
    let peak = peak.map_or_else(String::new, |peak| format!(", peak {}", gib(peak)));
    format!("cgroup `{}` has {limit}{peak}, oom_kill count {count}", directory.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_below_the_mask_counts() {
        assert_eq!(available_cpus(8, None), 8.0);
        assert_eq!(available_cpus(8, Some(2.0)), 2.0);
        assert_eq!(available_cpus(8, Some(0.5)), 1.0);
        assert_eq!(available_cpus(2, Some(64.0)), 2.0);
    }

    #[test]
    fn both_generations_of_cgroups_are_read() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("cpu.cfs_quota_us"), "150000\n").unwrap();
        fs::write(directory.path().join("cpu.cfs_period_us"), "100000\n").unwrap();
        assert_eq!(quota_in(directory.path()), Some(1.5));
        fs::write(directory.path().join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(quota_in(directory.path()), None);
        fs::write(directory.path().join("cpu.max"), "300000 100000\n").unwrap();
        assert_eq!(quota_in(directory.path()), Some(3.0));
    }

    #[test]
    fn what_is_asked_for_wins() {
        let limits = Limits { cpus: Some(8.0), gpus: Some(1.0), custom: vec![("disk".into(), 2.0)] };
        let (resources, devices) = node_resources(&limits, &["0".into(), "1".into()]).unwrap();
        assert_eq!((resources.amount("CPU"), resources.amount("GPU"), resources.amount("disk")), (8.0, 1.0, 2.0));
        assert_eq!(devices, ["0"]);
        assert!(resources.amount("memory") > 0.0);
    }
}
