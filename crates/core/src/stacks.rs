//! Reads the stacks of all ranks and says in one line who is missing, and where the others wait for it.
//!
//! The stacks are as Python's faulthandler writes them, innermost frame first. A rank waits when a frame of its main thread is
//! in a collective: of torch's, or of ours. Who does not wait while others do is the one that is missing.

use carril_types::Rank;

use crate::waits::ranks_text;

/// One rank's answer: its text is empty when it has none, its state is the kernel's word for the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankStack {
    pub rank: Rank,
    pub text: String,
    pub state: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame<'a> {
    file: &'a str,
    line: &'a str,
    function: &'a str,
}

/// `stuck` are the ranks without progress.
pub fn summarize(stacks: &[RankStack], stuck: &[Rank]) -> String {
    if stacks.is_empty() && stuck.is_empty() {
        return "no worker is up".to_owned();
    }
    let mut waiting: Vec<(String, Rank)> = Vec::new();
    let mut busy: Vec<(String, Rank)> = Vec::new();
    for stack in stacks {
        match place(stack) {
            Place::Waits(place) => waiting.push((place, stack.rank)),
            Place::Is(place) => busy.push((place, stack.rank)),
        }
    }
    if waiting.is_empty() {
        busy.retain(|(_, rank)| stuck.contains(rank));
        return if busy.is_empty() {
            format!("{} did not answer", ranks_text(stuck))
        } else {
            places(&busy, "is", "are")
        };
    }
    if busy.is_empty() {
        return format!("every rank waits: {}", places(&waiting, "waits", "wait"));
    }
    let missing: Vec<Rank> = busy.iter().map(|(_, rank)| *rank).collect();
    let verb = if missing.len() == 1 { "is" } else { "are" };
    let who = ranks_text(&missing);
    format!("{who} {verb} missing: {}; {}", places(&waiting, "waits", "wait"), places(&busy, "is", "are"))
}

enum Place {
    Waits(String),
    Is(String),
}

fn place(stack: &RankStack) -> Place {
    if stack.state == "stopped" {
        return Place::Is("stopped by a signal (SIGSTOP)".to_owned());
    }
    let frames = main_thread(&stack.text);
    let Some(innermost) = frames.first() else { return Place::Is(format!("{}, without an answer", stack.state)) };
    let ours = package_of(&frames);
    let at = frames.iter().find(|frame| is_users(frame, ours)).map_or_else(String::new, |frame| {
        let file = frame.file.rsplit('/').next().unwrap_or(frame.file);
        format!(" at {file}:{}", frame.line)
    });
    match frames.iter().rev().find(|frame| is_collective(frame)) {
        Some(collective) => Place::Waits(format!("in `{}`{at}", collective.function)),
        None => Place::Is(format!("in `{}`{at}", innermost.function)),
    }
}

/// The frames of the thread that took the signal, which is the main one; where that is not marked, of the last one.
fn main_thread(text: &str) -> Vec<Frame<'_>> {
    let mut frames = Vec::new();
    let mut taken = false;
    for line in text.lines() {
        if line.ends_with("(most recent call first):") {
            if taken {
                break;
            }
            taken = line.starts_with("Current thread");
            frames.clear();
        } else if let Some(frame) = parse(line) {
            frames.push(frame);
        }
    }
    frames
}

/// `  File "/home/me/train.py", line 12 in loop`
fn parse(line: &str) -> Option<Frame<'_>> {
    let (file, rest) = line.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    Some(Frame { file, line, function })
}

fn is_collective(frame: &Frame) -> bool {
    let torch = frame.file.contains("/torch/distributed/") && frame.function != "wrapper";
    torch || frame.file.ends_with("/carril/train/collective.py")
}

/// The directory of our own package, which every worker's function is called from. A user's may have the same name.
fn package_of<'a>(frames: &[Frame<'a>]) -> Option<&'a str> {
    frames.iter().rev().find_map(|frame| Some(frame.file.rsplit_once("_internal/worker.py")?.0))
}

fn is_users(frame: &Frame, ours: Option<&str>) -> bool {
    let foreign = ["/site-packages/", "/dist-packages/", "/lib/python3", "<frozen"];
    let ours = ours.is_some_and(|ours| frame.file.starts_with(ours)) || is_collective(frame);
    !ours && !foreign.iter().any(|part| frame.file.contains(part))
}

fn places(all: &[(String, Rank)], one: &str, many: &str) -> String {
    let mut grouped: Vec<(&str, Vec<Rank>)> = Vec::new();
    for (place, rank) in all {
        match grouped.iter_mut().find(|(known, _)| known == place) {
            Some((_, ranks)) => ranks.push(*rank),
            None => grouped.push((place, vec![*rank])),
        }
    }
    let part = |(place, ranks): &(&str, Vec<Rank>)| {
        format!("{} {} {place}", ranks_text(ranks), if ranks.len() == 1 { one } else { many })
    };
    grouped.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(rank: u32, frames: &[(&str, u32, &str)]) -> RankStack {
        let mut text =
            "Thread 0x01 (most recent call first):\n  File \"/usr/lib/python3.11/threading.py\", line 5 in wait\n\n\
                        Current thread 0x02 (most recent call first):\n"
                .to_owned();
        for (file, line, function) in frames {
            text.push_str(&format!("  File \"{file}\", line {line} in {function}\n"));
        }
        RankStack { rank: Rank(rank), text, state: "sleeping".into() }
    }

    fn in_all_reduce(rank: u32) -> RankStack {
        let torch = "/v/lib/python3.11/site-packages/torch/distributed";
        stack(
            rank,
            &[
                (&format!("{torch}/distributed_c10d.py"), 2810, "all_reduce"),
                (&format!("{torch}/c10d_logger.py"), 81, "wrapper"),
                ("/home/me/train.py", 12, "loop"),
                ("/v/lib/python3.11/site-packages/carril/_internal/worker.py", 90, "main"),
            ],
        )
    }

    #[test]
    fn the_one_that_is_not_where_the_others_wait_is_missing() {
        let sleeping = stack(1, &[("/home/me/train.py", 9, "loop")]);
        let text = summarize(&[in_all_reduce(0), sleeping, in_all_reduce(2)], &[Rank(0), Rank(1), Rank(2)]);
        assert_eq!(
            text,
            "rank 1 is missing: ranks 0 and 2 wait in `all_reduce` at train.py:12; rank 1 is in `loop` at train.py:9"
        );
    }

    #[test]
    fn a_stopped_rank_is_called_stopped() {
        let stopped = RankStack { rank: Rank(1), text: String::new(), state: "stopped".into() };
        let text = summarize(&[in_all_reduce(0), stopped], &[Rank(0), Rank(1)]);
        assert!(text.ends_with("rank 1 is stopped by a signal (SIGSTOP)"), "{text}");
    }

    #[test]
    fn when_all_wait_each_place_is_named() {
        let barrier = stack(1, &[("/p/carril/train/collective.py", 20, "barrier"), ("/home/me/train.py", 30, "loop")]);
        let text = summarize(&[in_all_reduce(0), barrier], &[Rank(0), Rank(1)]);
        assert_eq!(
            text,
            "every rank waits: rank 0 waits in `all_reduce` at train.py:12, rank 1 waits in `barrier` at train.py:30"
        );
    }

    #[test]
    fn a_user_may_call_a_directory_as_we_do() {
        let busy = |package: &str| {
            let worker = format!("{package}/_internal/worker.py");
            stack(1, &[("/home/me/carril/train.py", 9, "loop"), (&worker, 90, "main")])
        };
        for package in ["/v/lib/python3.11/site-packages/carril", "/home/me/carril/python/carril"] {
            assert_eq!(summarize(&[busy(package)], &[Rank(1)]), "rank 1 is in `loop` at train.py:9");
        }
    }

    #[test]
    fn when_nobody_waits_only_the_stuck_are_named() {
        let busy = |rank| stack(rank, &[("/home/me/train.py", 9, "loop")]);
        assert_eq!(summarize(&[busy(0), busy(1)], &[Rank(1)]), "rank 1 is in `loop` at train.py:9");
    }
}
