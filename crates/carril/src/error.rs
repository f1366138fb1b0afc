//! What goes wrong, and how it is told: one headline, the rest below it.

use std::error::Error as StdError;
use std::fmt::{self, Write};
use std::panic::Location;

use carril_types::{ErrorCode, ExitStatus, Failure, WorkerFailure};

/// Anything that is an error, as the standard library boxes it.
///
/// ```
/// let error: carril::BoxError = "the disk is full".into();
/// assert_eq!(error.to_string(), "the disk is full");
/// ```
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What the functions of this crate return.
///
/// ```
/// fn open() -> carril::Result<carril::Checkpoint> {
///     carril::Checkpoint::open("/no/such/directory")
/// }
/// assert!(open().is_err());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a training function may return, so that the line of each `?` is known: see [`TrainError`].
///
/// ```
/// use carril::{Session, TrainResult};
///
/// fn train(session: &Session, rate: f64) -> TrainResult {
///     let text = std::fs::read_to_string("data.csv")?; // an error here is told with this line
///     session.report(&serde_json::json!({"rows": text.lines().count(), "rate": rate}))?;
///     Ok(())
/// }
/// ```
pub type TrainResult<T = ()> = std::result::Result<T, TrainError>;

/// An error of a run, of a search, or of a call in a worker.
///
/// Printed with `{}` it is one headline: which rank, what, and where. Printed with `{:?}`, as `main` does with what it returns, the
/// causes, the other ranks and the hints follow. [`source`](StdError::source) leads through the causes that the training
/// function's own error had.
///
/// ```
/// let error = carril::Checkpoint::open("/no/such/directory").unwrap_err();
/// assert_eq!(error.code(), "checkpoint");
/// assert!(error.to_string().contains("/no/such/directory"));
/// ```
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    failure: Failure,
    /// The first cause first.
    ranks: Vec<RankFailure>,
    cause: Option<Cause>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// A trial is to stop here.
    Stop,
    Interrupted,
}

/// What one rank failed with.
///
/// ```no_run
/// # fn show(error: &carril::Error) {
/// for failure in error.ranks() {
///     println!("rank {} failed at {}: {}", failure.rank, failure.location, failure.message);
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RankFailure {
    /// Which one.
    pub rank: u32,
    /// The type of the error, `panic`, or empty where the process itself ended.
    pub kind: String,
    /// What it said.
    pub message: String,
    /// The file, line and column in the training function; empty where they are not known.
    pub location: String,
    /// The error and its causes, each as one text; of a process that died, what it printed last.
    pub details: Vec<String>,
    /// The exit code of a process that ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended the process.
    pub signal: Option<i32>,
}

impl RankFailure {
    fn of(told: WorkerFailure) -> Self {
        let (exit_code, signal) = match told.exit {
            Some(ExitStatus::Code(code)) => (Some(code), None),
            Some(ExitStatus::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        // A worker of ours sends the causes one by one.
        let causes: Option<Vec<String>> = serde_json::from_slice(&told.exception).ok();
        let printed = || Some(told.traceback.trim_end().to_owned()).filter(|text| !text.is_empty());
        Self {
            rank: told.rank.0,
            details: causes.unwrap_or_else(|| printed().into_iter().collect()),
            kind: told.exception_type,
            message: told.failure.message,
            location: told.location,
            exit_code,
            signal,
        }
    }

    fn headline(&self) -> String {
        let mut line = format!("rank {} failed: ", self.rank);
        for part in [self.kind.as_str(), if self.kind.is_empty() || self.message.is_empty() { "" } else { ": " }] {
            line.push_str(part);
        }
        line.push_str(&one_line(&self.message));
        if !self.location.is_empty() {
            let _ = write!(line, " at {}", self.location);
        }
        line
    }
}

/// An error of the training function, or a cause of one, as its text.
#[derive(Debug)]
struct Cause {
    text: String,
    next: Option<Box<Cause>>,
}

impl Cause {
    fn of(texts: &[String]) -> Option<Self> {
        let (first, rest) = texts.split_first()?;
        Some(Self { text: first.clone(), next: Self::of(rest).map(Box::new) })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.next.as_deref().map(|next| next as _)
    }
}

impl Error {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Failure::new(code, message).into()
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.inner.failure.hints.push(hint.into());
        self
    }

    /// A trial is to leave its function here.
    pub(crate) fn stop() -> Self {
        let mut error = Self::new(ErrorCode::Aborted, "the trial is to stop here: let this error leave the function");
        error.inner.kind = Kind::Stop;
        error
    }

    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        let mut error = Self::new(ErrorCode::Aborted, message);
        error.inner.kind = Kind::Interrupted;
        error
    }

    /// Of a run that ended badly.
    pub(crate) fn of_ranks(failure: Failure, failures: Vec<WorkerFailure>) -> Self {
        let mut error = Self::from(failure);
        error.inner.ranks = failures.into_iter().map(RankFailure::of).collect();
        let first = error.inner.ranks.first().filter(|first| !first.kind.is_empty());
        error.inner.cause = first.and_then(|first| Cause::of(&first.details));
        error
    }

    /// Of a callback, which has stopped the run.
    pub(crate) fn of_callback(raised: &(dyn StdError + 'static)) -> Self {
        let texts = chain(raised);
        let mut error =
            Self::new(ErrorCode::Aborted, format!("a callback failed, and the run was stopped: {}", joined(&texts)));
        error.inner.cause = Cause::of(&texts);
        error
    }

    /// What kind of error it is, in a word that does not change: `user-exception`, `worker-killed`, `run-exists`, …
    ///
    /// ```
    /// let error = carril::Checkpoint::open("/no/such/directory").unwrap_err();
    /// assert_eq!(error.code(), "checkpoint");
    /// ```
    pub fn code(&self) -> &'static str {
        self.inner.failure.code.name()
    }

    /// What can be done about it.
    ///
    /// ```no_run
    /// # fn show(error: &carril::Error) {
    /// for hint in error.hints() {
    ///     println!("try this: {hint}");
    /// }
    /// # }
    /// ```
    pub fn hints(&self) -> &[String] {
        &self.inner.failure.hints
    }

    /// The ranks that failed, the first cause first.
    ///
    /// ```no_run
    /// # fn show(error: &carril::Error) {
    /// if let Some(first) = error.ranks().first() {
    ///     println!("it began with rank {}", first.rank);
    /// }
    /// # }
    /// ```
    pub fn ranks(&self) -> &[RankFailure] {
        &self.inner.ranks
    }

    /// True for what a report of a trial returns when the trial is to stop. It is no failure: let it leave the function.
    ///
    /// ```
    /// use carril::{Session, TrainResult};
    ///
    /// fn objective(session: &Session, rate: f64) -> TrainResult {
    ///     for step in 0..100 {
    ///         match session.report(&serde_json::json!({"loss": rate / f64::from(step + 1)})) {
    ///             Err(stop) if stop.is_stop() => return Ok(()), // `?` does the same
    ///             reported => reported?,
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn is_stop(&self) -> bool {
        self.inner.kind == Kind::Stop
    }

    /// True when Ctrl-C has ended the run.
    ///
    /// ```no_run
    /// # fn run(trainer: carril::Trainer<f64>) {
    /// if trainer.fit().is_err_and(|error| error.is_interrupted()) {
    ///     println!("run the program again, and it goes on");
    /// }
    /// # }
    /// ```
    pub fn is_interrupted(&self) -> bool {
        self.inner.kind == Kind::Interrupted
    }

    /// True when the machine was taken away. The next `fit` of the same name goes on.
    ///
    /// ```no_run
    /// # fn run(trainer: carril::Trainer<f64>) {
    /// if trainer.fit().is_err_and(|error| error.is_preempted()) {
    ///     std::process::exit(75); // to be queued again
    /// }
    /// # }
    /// ```
    pub fn is_preempted(&self) -> bool {
        self.inner.failure.code == ErrorCode::Preempted
    }

    /// The connection to the head is gone.
    pub(crate) fn is_head_lost(&self) -> bool {
        self.inner.failure.code == ErrorCode::HeadLost
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self { inner: Box::new(Inner { failure, ranks: Vec::new(), cause: None, kind: Kind::Plain }) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        error.inner.failure
    }
}

impl From<carril_store::StoreError> for Error {
    fn from(error: carril_store::StoreError) -> Self {
        Failure::from(error).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner.ranks.first() {
            Some(first) => f.write_str(&first.headline()),
            None => f.write_str(&self.inner.failure.message),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        if let Some((first, others)) = self.inner.ranks.split_first() {
            let printed = first.kind.is_empty() && !first.details.is_empty();
            if printed {
                write!(f, "\n\nits last output:")?;
            }
            for detail in if printed { &first.details[..] } else { first.details.get(1..).unwrap_or_default() } {
                write!(f, "\n  {}{}", if printed { "" } else { "caused by: " }, detail.replace('\n', "\n  "))?;
            }
            for other in others {
                write!(f, "\n{}", other.headline())?;
            }
        }
        for hint in &self.inner.failure.hints {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.cause.as_ref().map(|cause| cause as _)
    }
}

/// An error of a training function, with the line at which it entered it.
///
/// A function may return any error. One that returns [`TrainResult`] has each `?` remember its file and line, which the headline in
/// the driver then tells.
///
/// ```
/// fn parse() -> carril::TrainResult<u32> {
///     Ok("seven".parse::<u32>()?)
/// }
/// let error = parse().unwrap_err();
/// assert_eq!(error.to_string(), "invalid digit found in string");
/// assert!(error.location().is_some(), "the line of the `?`");
/// ```
pub struct TrainError {
    error: BoxError,
    location: Option<&'static Location<'static>>,
}

impl TrainError {
    /// An error that is only a sentence.
    ///
    /// ```
    /// fn check(rate: f64) -> carril::TrainResult {
    ///     if rate <= 0.0 {
    ///         return Err(carril::TrainError::message(format!("the rate is {rate}")));
    ///     }
    ///     Ok(())
    /// }
    /// assert_eq!(check(0.0).unwrap_err().to_string(), "the rate is 0");
    /// ```
    #[track_caller]
    pub fn message(text: impl Into<String>) -> Self {
        Self { error: text.into().into(), location: Some(Location::caller()) }
    }

    /// Where the error entered the function.
    ///
    /// ```
    /// let error = carril::TrainError::message("no data");
    /// assert!(error.location().unwrap().file().ends_with(".rs"));
    /// ```
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.location
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for TrainError {
    #[track_caller]
    fn from(error: E) -> Self {
        Self { error: error.into(), location: Some(Location::caller()) }
    }
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl fmt::Debug for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", joined(&chain(self.error.as_ref())))?;
        self.location.map_or(Ok(()), |location| write!(f, " at {location}"))
    }
}

/// What a [`TrainError`] is in a box: it must not be an error itself, or it could not be made of every other one.
#[derive(Debug)]
pub(crate) struct Located {
    pub error: BoxError,
    pub location: Option<&'static Location<'static>>,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl StdError for Located {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

impl From<TrainError> for BoxError {
    fn from(error: TrainError) -> Self {
        Box::new(Located { error: error.error, location: error.location })
    }
}

/// The error and its causes, each as its text.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> Vec<String> {
    causes(error).map(ToString::to_string).collect()
}

/// The error and its causes.
pub(crate) fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// All causes in one line; one that the text before it ends with already is not told twice.
pub(crate) fn joined(texts: &[String]) -> String {
    let mut line = String::new();
    for text in texts.iter().map(|text| one_line(text)) {
        if line.is_empty() {
            line = text;
        } else if !line.ends_with(&text) {
            let _ = write!(line, ": {text}");
        }
    }
    line
}

pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
