//! Hyper-parameter search: what may be chosen, who chooses, and who judges.
//!
//! ```no_run
//! use carril::tune::{Asha, Space, loguniform};
//! use carril::{Mode, Tuner};
//! # fn objective(session: &carril::Session, config: std::collections::HashMap<String, f64>) -> carril::TrainResult { Ok(()) }
//!
//! # fn run() -> carril::Result<()> {
//! let result = Tuner::new(objective, Space::new().add("rate", loguniform(1e-4, 1e-1)))
//!     .metric("loss", Mode::Min)
//!     .samples(20)
//!     .scheduler(Asha::default())
//!     .fit()?;
//! println!("{}", result.best()?.metrics);
//! # Ok(())
//! # }
//! ```

mod choices;
mod result;
mod space;
mod tuner;

pub use choices::{Asha, HyperBand, MedianStopping, Pbt, Scheduler, Searcher};
pub use result::{Trial, TuneResult};
pub use space::{Domain, Space, choice, fixed, grid, lograndint, loguniform, quniform, randint, randn, uniform};
pub use tuner::Tuner;
