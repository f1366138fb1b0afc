//! The environment of a worker: the driver's, torchrun's contract, and the few names that are ours.

use std::path::Path;

use carril_types::WorkerKey;

pub(crate) struct Place<'a> {
    pub key: &'a WorkerKey,
    pub world_size: u32,
    pub local_rank: u32,
    pub local_world_size: u32,
    pub node_rank: u32,
    pub master_address: &'a str,
    pub master_port: u16,
    /// What `CUDA_VISIBLE_DEVICES` becomes; `None` leaves it as it is.
    pub visible_devices: Option<String>,
    pub agent_socket: &'a Path,
    pub run_name: &'a str,
}

/// `base` is what the worker starts from, `given` what the driver sent, which wins.
pub(crate) fn environment(
    base: &[(String, String)],
    given: &[(String, String)],
    place: &Place,
) -> Vec<(String, String)> {
    let mut all: std::collections::BTreeMap<String, String> =
        if given.is_empty() { base.iter().cloned().collect() } else { given.iter().cloned().collect() };
    let mut set = |name: &str, value: String| all.insert(name.to_owned(), value);
    set("RANK", place.key.rank.to_string());
    set("LOCAL_RANK", place.local_rank.to_string());
    set("WORLD_SIZE", place.world_size.to_string());
    set("LOCAL_WORLD_SIZE", place.local_world_size.to_string());
    set("NODE_RANK", place.node_rank.to_string());
    set("GROUP_RANK", place.node_rank.to_string());
    set("MASTER_ADDR", place.master_address.to_owned());
    set("MASTER_PORT", place.master_port.to_string());
    // The store at MASTER_PORT is served by us from rank 0, so every rank joins it as a client, as under torchrun.
    set("TORCHELASTIC_USE_AGENT_STORE", "True".to_owned());
    set("TORCHELASTIC_RUN_ID", place.key.run.to_string());
    set("TORCHELASTIC_RESTART_COUNT", place.key.attempt.0.to_string());
    // On one machine the frameworks, which authenticate nobody, are kept on loopback.
    for name in ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"] {
        if place.local_world_size == place.world_size {
            all.entry(name.to_owned()).or_insert_with(|| "lo".to_owned());
        }
    }
    let mut set = |name: &str, value: String| all.insert(name.to_owned(), value);
    set("CARRIL_AGENT", place.agent_socket.display().to_string());
    set("CARRIL_AGENT_PID", std::process::id().to_string());
    set("CARRIL_WORKER", place.key.to_string());
    set("CARRIL_RUN", place.run_name.to_owned());
    if let Some(devices) = &place.visible_devices {
        set("CUDA_VISIBLE_DEVICES", devices.clone());
    }
    // A worker that is itself a driver starts a head of its own.
    all.remove("CARRIL_HEAD");
    all.into_iter().collect()
}
