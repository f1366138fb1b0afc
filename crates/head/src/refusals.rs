//! Files that cannot be written for a while: two warnings, when it begins and when it is over, however often it was tried.

use carril_types::Failure;

/// How often the files could not be written since they last were.
#[derive(Default)]
pub(crate) struct Refusals(u64);

impl Refusals {
    /// The warning that this try deserves. `whose` has the files: "the run's".
    pub fn warning(&mut self, whose: &str, tried: &Result<(), Failure>) -> Option<String> {
        match tried {
            Err(failure) => {
                self.0 += 1;
                let text = || format!("{}; what is missing is written as soon as that is possible", failure.message);
                (self.0 == 1).then(text)
            }
            Ok(()) => {
                let tries = std::mem::take(&mut self.0);
                (tries > 0).then(|| format!("{whose} files are complete again, after {tries} tries that failed"))
            }
        }
    }
}
