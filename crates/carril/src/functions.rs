//! Which functions this program's workers can run, and what this process is: the driver, its private head, or a worker.
//!
//! A driver executes its own program again, as its head and as its workers. A function cannot be sent to another process; but the
//! same program has the same functions, and a list of them, made at the top of `main` by every process, gives each a number.

use std::any::{TypeId, type_name};
use std::sync::OnceLock;

use carril_client::PrivateOptions;
use carril_private::Limits;
use carril_types::{ErrorCode, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::again;
use crate::decode::from_value;
use crate::error::{BoxError, Error, Result};
use crate::session::Session;
use crate::worker;

/// The first argument of a process that is a private head, and of one that is a worker.
const HEAD: &str = "private-head";
pub(crate) const WORKER: &str = "private-worker";

static FUNCTIONS: OnceLock<Vec<Function>> = OnceLock::new();

/// Names the training functions of this program, and its functions of data that are used in training. It must be the first line of
/// `main`.
///
/// A driver executes its own program again as its workers. In such a process this line does not return: it runs the function
/// that the worker is for. In the driver it only takes note of the functions; a [`Trainer`](crate::Trainer) or
/// [`Tuner`](crate::Tuner) of a function that is not named here is refused when it is to run.
///
/// ```no_run
/// use carril::{Session, TrainResult, Trainer};
///
/// fn train(session: &Session, rate: f64) -> TrainResult {
///     session.report(&serde_json::json!({"loss": rate}))?;
///     Ok(())
/// }
///
/// fn main() -> carril::Result<()> {
///     carril::init!(train);
///     let result = Trainer::new(train, 0.1).workers(2).fit()?;
///     println!("{}", result.metrics);
///     Ok(())
/// }
/// ```
#[macro_export]
macro_rules! init {
    ($($function:path),* $(,)?) => {
        $crate::init(::std::vec![$($crate::Named::named($function)),*])
    };
}

type Run = Box<dyn Fn(&Session, Value) -> std::result::Result<Value, Ended> + Send + Sync>;

/// How a function came to an end that is not its result.
pub(crate) enum Ended {
    /// The config is not what the function takes.
    Config(String),
    Error {
        kind: String,
        error: BoxError,
    },
}

/// A training function of this program, as [`init()`] takes it.
///
/// ```
/// fn train(session: &carril::Session, rate: f64) -> carril::TrainResult {
///     Ok(session.report(&serde_json::json!({"loss": rate}))?)
/// }
/// let function = carril::Function::new(train);
/// assert!(function.name().ends_with("::train"));
/// ```
pub struct Function {
    id: TypeId,
    name: &'static str,
    pub(crate) run: Run,
    #[cfg(feature = "data")]
    pub(crate) batches: Option<std::sync::Arc<crate::data::BatchFunction>>,
}

/// A function that [`init!`](crate::init!) can name: a training function, or, with the feature `data`, one that makes one batch of
/// another. `Kind` is found by the compiler.
///
/// ```
/// use carril::Named;
///
/// fn train(session: &carril::Session, rate: f64) -> carril::TrainResult {
///     Ok(session.report(&serde_json::json!({"loss": rate}))?)
/// }
/// assert!(train.named().name().ends_with("::train"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no function that `carril::init!` can name",
    note = "a training function takes a `&Session` and a config that derives `Deserialize`, and returns a `Result`"
)]
pub trait Named<Kind> {
    /// The function as [`init()`] takes it.
    ///
    /// ```
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// carril::init(vec![carril::Named::named(train)]);
    /// ```
    fn named(self) -> Function;
}

impl<F, C, T, E> Named<(C, T, E)> for F
where
    F: Fn(&Session, C) -> std::result::Result<T, E> + Copy + Send + Sync + 'static,
    C: DeserializeOwned,
    T: Serialize,
    E: Into<BoxError>,
{
    fn named(self) -> Function {
        Function::new(self)
    }
}

impl Function {
    /// A function or a closure that captures nothing; one that does is refused by the compiler, because a worker, another process,
    /// has nothing of what was captured.
    ///
    /// ```
    /// let function = carril::Function::new(|session: &carril::Session, rate: f64| {
    ///     session.report(&serde_json::json!({"loss": rate}))
    /// });
    /// ```
    ///
    /// ```compile_fail
    /// let base = std::env::args().count() as f64;
    /// carril::Function::new(move |session: &carril::Session, rate: f64| {
    ///     session.report(&serde_json::json!({"loss": base * rate}))
    /// });
    /// ```
    pub fn new<F, C, T, E>(function: F) -> Self
    where
        F: Fn(&Session, C) -> std::result::Result<T, E> + Copy + Send + Sync + 'static,
        C: DeserializeOwned,
        T: Serialize,
        E: Into<BoxError>,
    {
        const { assert!(size_of::<F>() == 0, "a training function must not capture anything: give it in its config") };
        let run = move |session: &Session, config: Value| {
            let config = from_value(config).map_err(|unfit| Ended::Config(unfit.to_string()))?;
            let failed = |error: E| Ended::Error { kind: kind_of::<E>(), error: error.into() };
            let value = function(session, config).map_err(failed)?;
            crate::encode::to_value(&value).map_err(|unfit| Ended::Error { kind: "error".into(), error: unfit.into() })
        };
        Self {
            id: TypeId::of::<F>(),
            name: type_name::<F>(),
            run: Box::new(run),
            #[cfg(feature = "data")]
            batches: None,
        }
    }

    #[cfg(feature = "data")]
    pub(crate) fn of_batches(function: std::sync::Arc<crate::data::BatchFunction>) -> Self {
        let Known { id, name } = function.known;
        let run = move |_: &Session, _: Value| Err(Ended::Config("it is a function of batches".to_owned()));
        Self { id, name, run: Box::new(run), batches: Some(function) }
    }

    /// What the compiler calls it.
    ///
    /// ```
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// assert!(carril::Function::new(train).name().contains("train"));
    /// ```
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// The type of an error in a headline; one that may be any error has no better name.
fn kind_of<E>() -> String {
    let name = type_name::<E>();
    let plain = name.split('<').next().unwrap_or(name);
    let any = plain.contains("dyn ") || plain.starts_with("alloc::") || plain.starts_with("&");
    let ours = ["carril::", "anyhow::", "eyre::"].iter().any(|prefix| plain.starts_with(prefix));
    if any || ours { "error".to_owned() } else { plain.rsplit("::").next().unwrap_or(plain).to_owned() }
}

/// What [`init!`](crate::init!) calls.
///
/// # Panics
/// When it is called a second time.
///
/// ```no_run
/// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
/// carril::init(vec![carril::Function::new(train)]);
/// ```
pub fn init(functions: Vec<Function>) {
    let mut arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    match arguments.next().as_deref() {
        Some(HEAD) => {
            if let Some((driver, options)) = PrivateOptions::from_arguments(arguments) {
                let limits = Limits { cpus: options.cpus, gpus: options.gpus, custom: options.resources };
                worker::take_the_programs_name();
                let code = carril_private::run(driver, limits);
                worker::leave(if code == std::process::ExitCode::SUCCESS { 0 } else { 3 });
            }
        }
        Some(WORKER) if std::env::var_os("CARRIL_WORKER").is_some() => worker::run(&functions),
        _ => {}
    }
    again::note_directory();
    assert!(FUNCTIONS.set(functions).is_ok(), "`carril::init!` is called once, as the first line of `main`");
}

/// The number and the name under which the workers know a function.
pub(crate) fn number_of<F: 'static>() -> Known {
    Known { id: TypeId::of::<F>(), name: type_name::<F>() }
}

#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub id: TypeId,
    pub name: &'static str,
}

impl Known {
    /// Refuses, before anything is started, a function that no worker would find.
    pub fn number(&self) -> Result<usize> {
        let short = self.name.rsplit("::").next().unwrap_or(self.name);
        let Some(functions) = FUNCTIONS.get() else {
            let message = "`carril::init!` was not called: this program's workers would not know what to run";
            return Err(Error::new(ErrorCode::InvalidConfig, message)
                .hint(format!("make this the first line of `main`: carril::init!({short});")));
        };
        functions.iter().position(|function| function.id == self.id).ok_or_else(|| {
            let named: Vec<&str> =
                functions.iter().map(|function| function.name.rsplit("::").next().unwrap_or(function.name)).collect();
            let all = [&named[..], &[short]].concat().join(", ");
            Error::new(
                ErrorCode::InvalidConfig,
                format!("`{}` is not among the functions of `carril::init!`", self.name),
            )
            .hint(format!("make this the first line of `main`: carril::init!({all});"))
        })
    }
}
