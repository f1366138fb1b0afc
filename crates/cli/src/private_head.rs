//! `carril private-head`: the head and the agent of one driver, in one process (`carril_private`).

use std::process::ExitCode;

use carril_private::Limits;
use clap::Args;

use crate::NodeLimits;

#[derive(Args)]
pub struct PrivateHead {
    /// The pid of the driver
    #[arg(long)]
    driver: u32,
    #[command(flatten)]
    limits: NodeLimits,
}

impl PrivateHead {
    pub fn run(self) -> ExitCode {
        let NodeLimits { num_cpus, num_gpus, resources } = self.limits;
        carril_private::run(self.driver, Limits { cpus: num_cpus, gpus: num_gpus, custom: resources })
    }
}
