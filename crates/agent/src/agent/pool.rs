//! Processes that serve one trial after the other.

use std::collections::HashMap;

use carril_proto::v1;
use carril_types::{Failure, WorkerKey};

use super::{Agent, Orders, Worker, devices_for, output_of};

/// A process that waits for another trial.
pub(super) struct Idle {
    pub pid: u32,
    orders: Orders,
    /// Under which it said hello.
    first: WorkerKey,
    /// What it was last.
    last: WorkerKey,
    stacks: bool,
}

pub(super) fn pool_of(group: &v1::Group) -> String {
    group.trial.as_ref().map_or(String::new(), |trial| trial.pool.clone())
}

impl Agent {
    /// To the head the worker is gone; its process waits for another trial.
    pub(super) fn keep_for_another(&mut self, key: &WorkerKey) {
        let kept = self.workers.get(key).filter(|worker| !worker.pool.is_empty() && !worker.stopping);
        let Some((pid, orders)) = kept.and_then(|worker| Some((worker.pid?, worker.orders.clone()?))) else { return };
        self.pass_on_output(key, true);
        let Some(worker) = self.workers.remove(key) else { return };
        let first = worker.first.unwrap_or_else(|| key.clone());
        let idle = Idle { pid, orders, first, last: key.clone(), stacks: worker.stacks };
        self.pools.entry(worker.pool).or_default().push(idle);
        self.world.to_head(v1::WorkerExited { worker: Some(key.clone().into()), ..Default::default() }.into());
    }

    /// The process goes on as this worker.
    pub(super) fn reuse(&mut self, group: &v1::Group, key: &WorkerKey, idle: Idle) -> Result<(), Failure> {
        // Its log goes on under the name that it began with: to make a file is dear on some disks.
        let (report_log, output) = (self.world.report_log(&idle.first), output_of(group, key));
        if let Err(failure) = self.world.follow_on(&idle.last, key, output.clone()) {
            let pool = pool_of(group);
            self.pools.entry(pool).or_default().push(idle);
            return Err(failure);
        }
        let (visible, devices) = devices_for(group, 0);
        let mut environment = HashMap::from([
            ("CARRIL_WORKER".to_owned(), key.to_string()),
            ("CARRIL_RUN".to_owned(), group.run_name.clone()),
            ("TORCHELASTIC_RUN_ID".to_owned(), key.run.to_string()),
            ("TORCHELASTIC_RESTART_COUNT".to_owned(), key.attempt.0.to_string()),
        ]);
        if let Some(visible) = visible {
            environment.insert("CUDA_VISIBLE_DEVICES".to_owned(), visible);
        }
        let assignment = v1::Assignment {
            worker: Some(key.clone().into()),
            environment,
            output: output.display().to_string(),
            working_directory: group.working_directory.clone(),
            ..self.assignment(group, 0, &report_log, devices)
        };
        let _ = idle.orders.send(Ok(assignment.clone().into()));
        let worker = Worker {
            pid: Some(idle.pid),
            first: Some(idle.first.clone()),
            pool: pool_of(group),
            orders: Some(idle.orders),
            stacks: idle.stacks,
            ..Worker::new(assignment, self.world.memory_kills())
        };
        self.workers.insert(key.clone(), worker);
        self.now.insert(idle.first, key.clone());
        let how = "a process that had served another trial".to_owned();
        self.world.to_head(v1::WorkerStarted { worker: Some(key.clone().into()), pid: idle.pid, how }.into());
        Ok(())
    }

    pub(super) fn drop_pool(&mut self, pool: &str) {
        for idle in self.pools.remove(pool).unwrap_or_default() {
            let _ = idle.orders.send(Ok(v1::Exit {}.into()));
            self.world.set_stop_timer(idle.first.clone(), super::LEAVE);
            self.leaving.insert(idle.first, idle.pid);
        }
    }
}
