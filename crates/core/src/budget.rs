//! Whether a run that failed is tried again: what the user allows, counted by whose fault it was.
//!
//! BUDGET-1: a failure is charged to one budget, that of its origin; preemption is never charged.
//! BUDGET-2: a limit of n allows n restarts.
//! BUDGET-3: the same failure at the same step twice in a row is said. One of the user's ends a run whose budget has no end:
//!   it would come again for ever.

use carril_types::{Failure, Origin};

/// What the user allows. The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureRule {
    pub failures: Limit,
    pub infrastructure: Infrastructure,
    /// A user's failure ends the run, whatever the budgets say.
    pub fail_fast: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    AtMost(u32),
    Any,
}

impl Default for Limit {
    fn default() -> Self {
        Limit::AtMost(0)
    }
}

/// Where failures of machines are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infrastructure {
    OnItsOwn(Limit),
    /// Together with the user's, as in Ray.
    WithTheUsers,
}

impl Default for Infrastructure {
    fn default() -> Self {
        Infrastructure::OnItsOwn(Limit::default())
    }
}

/// What comes after a failure, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Restart(String),
    End(String),
}

#[derive(Clone, Debug, Default)]
pub struct Budget {
    rule: FailureRule,
    failures: u32,
    infrastructure_failures: u32,
    /// What failed last, and after how many reports.
    last: Option<(String, u64)>,
}

impl Budget {
    pub fn new(rule: FailureRule) -> Self {
        Self { rule, failures: 0, infrastructure_failures: 0, last: None }
    }

    /// Charges the failure that ended an attempt after so many reports; `headline` is what it is known again by.
    pub fn charge(&mut self, failure: &Failure, headline: &str, reports: u64) -> Verdict {
        let origin = failure.code.origin();
        let again = self.is_the_same_again(headline, reports);
        let (count, limit, name) = match (origin, self.rule.infrastructure) {
            (Origin::Preemption, _) => return Verdict::Restart("a preemption costs nothing".to_owned()),
            (Origin::Infrastructure, Infrastructure::OnItsOwn(limit)) => {
                self.infrastructure_failures += 1;
                (self.infrastructure_failures, limit, "max_infrastructure_failures")
            }
            (Origin::Infrastructure | Origin::User | Origin::Carril, _) => {
                self.failures += 1;
                (self.failures, self.rule.failures, "max_failures")
            }
        };
        if !failure.code.retryable() {
            return Verdict::End("it would fail in the same way again".to_owned());
        }
        if self.rule.fail_fast && origin == Origin::User {
            return Verdict::End("`fail_fast` is set".to_owned());
        }
        let loud = if again { ", the same as the last time, at the same step" } else { "" };
        match limit {
            // A machine that fails twice is bad luck; a mistake that comes twice would come for ever.
            Limit::Any if again && origin != Origin::Infrastructure => {
                Verdict::End(format!("the same failure came twice at the same step, after report {reports}"))
            }
            Limit::Any => Verdict::Restart(format!("failure {count} of any number by `{name}`{loud}")),
            Limit::AtMost(limit) if count <= limit => {
                Verdict::Restart(format!("failure {count} of {limit} by `{name}`{loud}"))
            }
            Limit::AtMost(0) => Verdict::End(format!("`{name}` is 0")),
            Limit::AtMost(limit) => Verdict::End(format!("`{name}={limit}` is used up{loud}")),
        }
    }

    fn is_the_same_again(&mut self, headline: &str, reports: u64) -> bool {
        let now = Some((alike(headline), reports));
        let again = self.last == now;
        self.last = now;
        again
    }
}

/// What a failure is known again by: its words without the numbers.
pub fn alike(headline: &str) -> String {
    headline.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use carril_types::ErrorCode;

    use super::*;

    fn charge(budget: &mut Budget, code: ErrorCode, message: &str, step: u64) -> Verdict {
        budget.charge(&Failure::new(code, message), message, step)
    }

    fn restarts(rule: FailureRule, code: ErrorCode) -> usize {
        let mut budget = Budget::new(rule);
        let mut count = 0;
        // Each at another step: never the same again.
        while let Verdict::Restart(_) = charge(&mut budget, code, "mistake", count as u64) {
            count += 1;
            assert!(count < 100, "this budget has an end");
        }
        count
    }

    #[test]
    fn each_origin_has_its_own_budget() {
        let infrastructure = Infrastructure::OnItsOwn(Limit::AtMost(5));
        let rule = FailureRule { failures: Limit::AtMost(2), infrastructure, fail_fast: false };
        assert_eq!(restarts(rule, ErrorCode::UserException), 2);
        assert_eq!(restarts(rule, ErrorCode::WorkerKilled), 5);
        assert_eq!(restarts(rule, ErrorCode::ReportMismatch), 0, "what cannot go better is not tried");
        assert_eq!(restarts(rule, ErrorCode::StorageRefused), 0, "a restart makes no room");
        assert_eq!(restarts(FailureRule::default(), ErrorCode::UserException), 0);
        assert_eq!(restarts(FailureRule { fail_fast: true, ..rule }, ErrorCode::UserException), 0);
        let as_ray = FailureRule { infrastructure: Infrastructure::WithTheUsers, ..rule };
        assert_eq!(restarts(as_ray, ErrorCode::WorkerKilled), 2);
    }

    #[test]
    fn the_same_failure_at_the_same_step_ends_a_run_without_an_end() {
        let rule = FailureRule { failures: Limit::Any, ..FailureRule::default() };
        let mut budget = Budget::new(rule);
        let charge = |budget: &mut Budget, message, step| charge(budget, ErrorCode::UserException, message, step);
        assert!(matches!(charge(&mut budget, "a", 3), Verdict::Restart(_)));
        assert!(matches!(charge(&mut budget, "a", 4), Verdict::Restart(_)), "it got further");
        assert!(matches!(charge(&mut budget, "b", 4), Verdict::Restart(_)), "another mistake");
        let Verdict::End(why) = charge(&mut budget, "b", 4) else { panic!("it would come again for ever") };
        assert!(why.contains("twice at the same step"), "{why}");
    }

    #[test]
    fn with_a_budget_it_is_only_said() {
        let mut budget = Budget::new(FailureRule { failures: Limit::AtMost(3), ..FailureRule::default() });
        charge(&mut budget, ErrorCode::UserException, "object at 0x712", 0);
        let verdict = charge(&mut budget, ErrorCode::UserException, "object at 0x834", 0);
        let Verdict::Restart(why) = verdict else { panic!("there is budget left") };
        assert!(why.contains("the same as the last time"), "{why}");
    }
}
