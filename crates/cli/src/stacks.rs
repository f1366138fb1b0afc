//! `carril stacks RUN`: where every rank of a live run or trial is, or those of every running trial of a search.

use carril_proto::v1::StacksReply;
use carril_types::{ErrorCode, Failure};
use clap::Args;
use serde_json::json;

use crate::find::{Live, Storage, block_on, is_end, live_runs, typed};
use crate::resolve::{Kind, Subject};
use crate::status::is_below;
use crate::table::print_all;

/// Of a search with more running trials than this, only so many are asked.
const MOST_TRIALS: usize = 16;

#[derive(Args)]
pub struct Stacks {
    /// The name, id or directory of a run, experiment or trial
    run: String,
    /// Print one JSON object per rank
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    storage: Storage,
}

impl Stacks {
    pub fn run(self) -> Result<(), Failure> {
        let (replies, trial) = block_on(async {
            let subject = self.storage.resolve(&self.run).await?;
            let mut replies = Vec::new();
            for (name, live) in asked(&self.run, &subject).await? {
                match live.client.stacks(live.summary.run_id).await {
                    Ok(reply) => replies.push((name, reply)),
                    // The others of a search are asked all the same.
                    Err(failure) if failure.code == ErrorCode::NotFound && !name.is_empty() => {
                        eprintln!("note: {name} has paused or ended while it was asked");
                    }
                    Err(failure) => return Err(failure),
                }
            }
            let trial = match &subject.kind {
                Kind::Trial(of) => Some(of.trial().name.clone()),
                _ => None,
            };
            Ok((replies, trial))
        })?;
        for (name, reply) in replies {
            print_all(&if self.json { lines(&name, trial.as_deref(), &reply) } else { shown(&name, &reply) });
        }
        Ok(())
    }
}

/// Whose ranks are asked, with the name of the trial where there are several.
async fn asked(word: &str, subject: &Subject) -> Result<Vec<(String, Live)>, Failure> {
    let Some(live) = &subject.live else { return Err(not_live(word, subject)) };
    if !matches!(subject.kind, Kind::Experiment(_)) {
        return Ok(vec![(String::new(), Live { client: live.client.clone(), summary: live.summary.clone() })]);
    }
    let trials = live_runs().await.into_iter().filter(|one| {
        is_below(&one.summary.path, &subject.location)
            && !is_end(&one.summary.status)
            && !one.summary.workers.is_empty()
    });
    let mut asked: Vec<(String, Live)> = trials.map(|trial| (trial.summary.name.clone(), trial)).collect();
    if asked.is_empty() {
        let message = format!("no trial of `{word}` is running now: {}", live.summary.reason);
        return Err(Failure::new(ErrorCode::NotFound, message));
    }
    if asked.len() > MOST_TRIALS {
        eprintln!("note: {} trials are running, and {MOST_TRIALS} of them are asked", asked.len());
        asked.truncate(MOST_TRIALS);
    }
    Ok(asked)
}

/// What there is to say of one that no head has.
pub fn not_live(word: &str, subject: &Subject) -> Failure {
    let (what, state) = match &subject.kind {
        Kind::Run => ("run", None),
        Kind::Experiment(experiment) => ("experiment", Some(format!("is {}", experiment.status_word()))),
        Kind::Trial(of) => ("trial", Some(crate::tune::stands(of.trial(), false))),
    };
    let state = state.map_or_else(String::new, |state| format!(": it {state}"));
    let typed = typed(word, &subject.location);
    Failure::new(ErrorCode::NotFound, format!("the {what} `{word}` is not live{state}"))
        .hint(format!("`carril explain {typed}` tells how it went, `carril logs {typed}` what its workers printed"))
}

fn shown(name: &str, reply: &StacksReply) -> String {
    let whose = if name.is_empty() { String::new() } else { format!("{name}: ") };
    let mut text = format!("{whose}{}\n", reply.summary);
    for stack in &reply.stacks {
        let answer = stack.text.trim_end();
        let answer = if answer.is_empty() { "(no answer)" } else { answer };
        text.push_str(&format!("\nrank {} ({})\n{answer}\n", stack.rank, stack.state));
    }
    if !name.is_empty() {
        text.push('\n');
    }
    text
}

/// `trial` is the one that was asked for; of a search, each reply has its own.
fn lines(name: &str, trial: Option<&str>, reply: &StacksReply) -> String {
    let trial = trial.or((!name.is_empty()).then_some(name));
    let line = |stack: &carril_proto::v1::RankStack| {
        json!({
            "trial": trial, "summary": reply.summary, "rank": stack.rank, "state": stack.state, "stack": stack.text,
        })
    };
    reply.stacks.iter().map(|stack| format!("{}\n", line(stack))).collect()
}
