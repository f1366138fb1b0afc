//! What the simulated workers do, step by step, through the agent as a real one would.

use carril_proto::v1;
use carril_store::Storage;
use carril_types::{ExitStatus, WorkerKey};
use tokio::sync::{mpsc, oneshot};

use crate::node::{Doing, lock};
use crate::sim::{RUN, STEPS, Sim};

impl Sim {
    /// The process is there.
    pub(crate) fn worker_started(&mut self, place: usize, key: &WorkerKey) {
        self.kernel.note(format!("{key} starts at place {place}"));
        let other = self.live_workers().into_iter().find(|other| other.run == key.run && other.attempt != key.attempt);
        if let Some(other) = other {
            self.violated(format!("SIM-1: {key} starts while {other} lives"));
        }
    }

    pub(crate) fn worker_connects(&mut self, place: usize, life: u64, key: &WorkerKey) {
        let Some((_, workers)) = self.workers_at(place).filter(|(now, _)| *now == life) else { return };
        if !lock(&workers).all.contains_key(key) {
            return;
        }
        let (sender, orders) = mpsc::unbounded_channel();
        let accepted = self.agent_mut(place, life).map(|agent| agent.on_hello(key, sender));
        if let (Some(Ok(())), Some(worker)) = (accepted, lock(&workers).all.get_mut(key)) {
            worker.orders = Some(orders);
        }
    }

    /// Takes what agents have answered, and lets workers act on it.
    pub(crate) fn poll_workers(&mut self, place: usize) {
        let Some((life, workers)) = self.workers_at(place) else { return };
        let keys: Vec<WorkerKey> = lock(&workers).all.keys().cloned().collect();
        for key in keys {
            let (mut orders, mut answered) = (Vec::new(), false);
            if let Some(worker) = lock(&workers).all.get_mut(&key) {
                while let Some(Ok(order)) = worker.orders.as_mut().and_then(|orders| orders.try_recv().ok()) {
                    orders.push(order);
                }
                if let Some(answer) = &mut worker.answer {
                    match answer.try_recv() {
                        Ok(Ok(_)) => answered = true,
                        Ok(Err(_)) | Err(oneshot::error::TryRecvError::Empty) => {}
                        Err(oneshot::error::TryRecvError::Closed) => {}
                    }
                }
                if answered {
                    worker.answer = None;
                    worker.doing = Doing::Step;
                }
            }
            for order in orders {
                self.worker_ordered(place, life, &key, order);
            }
            if answered {
                self.worker_later(place, life, key);
            }
        }
    }

    fn worker_later(&mut self, place: usize, life: u64, key: WorkerKey) {
        let later = self.kernel.between(0.01, 1.5);
        self.kernel.after(later, move |sim| sim.worker_acts(place, life, &key));
    }

    fn worker_ordered(&mut self, place: usize, life: u64, key: &WorkerKey, order: v1::WorkerOrder) {
        use v1::worker_order::Kind;
        let Some((_, workers)) = self.workers_at(place) else { return };
        match order.kind {
            Some(Kind::Assignment(assignment)) => {
                if !is_check(&assignment) {
                    self.check_beginning(key, &assignment);
                }
                if let Some(worker) = lock(&workers).all.get_mut(key) {
                    worker.reports = assignment.reports;
                    worker.assignment = Some(assignment);
                    worker.doing = Doing::Step;
                }
                let ready = v1::WorkerReady {
                    worker: None,
                    at: self.kernel.now(),
                    pid: 1,
                    stacks: false,
                    clock: self.kernel.now(),
                };
                if let Some(agent) = self.agent_mut(place, life) {
                    agent.on_worker_message(key, ready.into());
                }
                self.worker_later(place, life, key.clone());
            }
            Some(Kind::Exit(_)) => {
                let gone = lock(&workers).all.remove(key);
                if let Some(worker) = gone {
                    let key = key.clone();
                    self.kernel.after(0.01, move |sim| {
                        sim.with_agent(place, life, |agent| agent.on_exited(&key, worker.pid, ExitStatus::Code(0), 0));
                    });
                }
            }
            Some(Kind::Preempt(_)) | None => {}
        }
    }

    /// One thing of a training function: a barrier, a place for a checkpoint, a report, the end.
    pub(crate) fn worker_acts(&mut self, place: usize, life: u64, key: &WorkerKey) {
        let Some((_, workers)) = self.workers_at(place).filter(|(now, _)| *now == life) else { return };
        let Some((step, met, has_place, checks)) =
            lock(&workers).all.get(key).filter(|worker| worker.doing == Doing::Step).map(|worker| {
                let checks = worker.assignment.as_ref().is_some_and(is_check);
                (worker.reports, worker.met, worker.has_place, checks)
            })
        else {
            return;
        };
        if step == if checks { 1 } else { STEPS } {
            if let Some(worker) = lock(&workers).all.get_mut(key) {
                worker.doing = Doing::Returned;
            }
            let returned = v1::WorkerReturned { worker: None, value: String::new(), preempted: false };
            if let Some(agent) = self.agent_mut(place, life) {
                agent.on_worker_message(key, returned.into());
            }
        } else if checks {
            self.worker_reports(place, life, key, step);
        } else if step % 3 == 0 && !met {
            let barrier = lock(&workers).all.get_mut(key).map_or(0, |worker| {
                worker.met = true;
                worker.barriers += 1;
                worker.barriers - 1
            });
            self.worker_waits(place, life, key, "barrier", barrier);
        } else if is_saved(step) && !has_place {
            if let Some(worker) = lock(&workers).all.get_mut(key) {
                worker.has_place = true;
            }
            self.worker_waits(place, life, key, "place", step);
        } else {
            self.worker_reports(place, life, key, step);
        }
    }

    fn worker_waits(&mut self, place: usize, life: u64, key: &WorkerKey, kind: &str, sequence: u64) {
        let Some((_, workers)) = self.workers_at(place) else { return };
        let (sender, answer) = oneshot::channel();
        if let Some(worker) = lock(&workers).all.get_mut(key) {
            (worker.answer, worker.doing) = (Some(answer), Doing::Waiting);
        }
        let wait =
            v1::WorkerWaits { worker: Some(key.clone().into()), kind: kind.into(), sequence, payload: Vec::new() };
        if let Some(agent) = self.agent_mut(place, life) {
            agent.on_wait(key, wait, sender);
        }
    }

    fn worker_reports(&mut self, place: usize, life: u64, key: &WorkerKey, step: u64) {
        let Some((_, workers)) = self.workers_at(place) else { return };
        let saves = is_saved(step);
        if saves && !self.worker_saves(place, life, key, step + 1) {
            return;
        }
        let timeout_s = self.kernel.chance(0.2).then(|| self.kernel.between(0.1, 3.0));
        let task = v1::ValidationTask { arguments: "{}".into(), timeout_s };
        let report = v1::Report {
            validation: (step % 4 == 3).then_some(task),
            sequence: step,
            at: self.kernel.now(),
            clock: self.kernel.now(),
            metrics: Some(v1::ValueMap::default()),
            checkpoint: saves,
            ..Default::default()
        };
        {
            let mut workers = lock(&workers);
            workers.logs.entry(key.clone()).or_default().0.push(report);
            if let Some(worker) = workers.all.get_mut(key) {
                worker.reports = step + 1;
                (worker.met, worker.has_place) = (false, false);
            }
        }
        // The agent hears of what was written a moment later.
        let heard = self.kernel.between(0.001, 0.3);
        self.kernel.after(heard, move |sim| sim.with_agent(place, life, |agent| agent.on_changes()));
        self.worker_later(place, life, key.clone());
    }

    /// The rank's file is taken by the agent, and is prepared a moment later.
    fn worker_saves(&mut self, place: usize, life: u64, key: &WorkerKey, iteration: u64) -> bool {
        let from = self.directory.path().join(format!("files_of_{}_{}", key.attempt.0, key.rank));
        let made = std::fs::create_dir_all(&from)
            .and_then(|()| std::fs::write(from.join(format!("rank_{}", key.rank)), iteration.to_string()));
        let Some(Ok(save)) = self.agent_mut(place, life).map(|agent| agent.save_place(key)) else { return false };
        let Ok(files) = made.map_err(drop).and_then(|()| save.take(iteration, key.rank, &from, false).map_err(drop))
        else {
            self.violated(format!("{key} cannot save report {iteration}"));
            return false;
        };
        let (key, later) = (key.clone(), self.kernel.between(0.001, 0.5));
        self.kernel.after(later, move |sim| {
            if sim.is_agent(place, life) {
                let shard = save.prepare(iteration, key.rank, files).map_err(Into::into);
                sim.with_agent(place, life, |agent| agent.on_prepared(&key, iteration, String::new(), shard));
            }
        });
        true
    }

    pub(crate) fn storage(&self) -> Storage {
        Storage::local(&self.directory.path().join("run"))
    }
}

/// Whether the worker checks a checkpoint of the run, which it does with its only report.
fn is_check(assignment: &v1::Assignment) -> bool {
    assignment.run_name != RUN
}

fn is_saved(step: u64) -> bool {
    step % 2 == 1
}
