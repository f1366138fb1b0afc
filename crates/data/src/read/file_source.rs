//! What the readers of all formats share: a list of units, and patience with damage.
//!
//! DAMAGE-1: of a damaged unit that is passed over, no row is handed on: its blocks wait until the unit is read whole.
//! DAMAGE-2: a unit counts once, however often it is read.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic;
use std::sync::{Arc, Mutex, Once};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::error::DataError;
use crate::files::FileRef;
use crate::source::{ColumnReader, Flow, Source, Unit};

pub(crate) type Take<'a> = &'a mut dyn FnMut(RecordBatch) -> Result<Flow, DataError>;

/// Reads the units of one format.
pub(crate) trait UnitReader: Send + Sync {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError>;

    fn columns(&self) -> Option<&dyn ColumnReader> {
        None
    }
}

pub(crate) struct FileSource {
    pub schema: SchemaRef,
    pub units: Vec<Unit>,
    pub files: Arc<[FileRef]>,
    pub damages: Arc<Damages>,
    pub reader: Box<dyn UnitReader>,
}

impl Source for FileSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        if self.damages.most == 0 {
            return self.reader.read(unit, take);
        }
        let mut blocks = Vec::new();
        let read = self.reader.read(unit, &mut |block| {
            blocks.push(block);
            Ok(Flow::Continue)
        });
        if let Err(error) = read {
            return self.damages.pass_over(error);
        }
        for block in blocks {
            if take(block)? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }

    /// DAMAGE-1: a unit that may be passed over is read whole.
    fn columns(&self) -> Option<&dyn ColumnReader> {
        self.reader.columns().filter(|_| self.damages.most == 0)
    }

    fn files(&self) -> Vec<String> {
        self.files.iter().map(|file| file.name.clone()).collect()
    }

    fn warnings(&self) -> Vec<String> {
        self.damages.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter().cloned().collect()
    }
}

/// What a decoder says, without the names that it gives to its own errors.
pub(crate) fn told(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut rest = text.lines().next().unwrap_or_default().trim_end_matches('.');
    while let Some((kind, after)) = rest.split_once(": ")
        && ["error", "EOF", "External", "Arrow"].iter().any(|end| kind.ends_with(end))
    {
        rest = after;
    }
    rest.to_owned()
}

thread_local! {
    /// Whether this thread is in a decoder whose panics are caught.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// What a decoder says when it panics would reach the user beside the error that it becomes. Other panics stay as loud as they are.
fn silence_decoders() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_GUARDED.get() {
                loud(info);
            }
        }));
    });
}

/// A decoder that panics on damaged bytes has found damage too.
pub(crate) fn guarded<T, E: std::fmt::Display>(decode: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    silence_decoders();
    let before = IS_GUARDED.replace(true);
    let decoded = panic::catch_unwind(panic::AssertUnwindSafe(decode));
    IS_GUARDED.set(before);
    match decoded {
        Ok(decoded) => decoded.map_err(told),
        Err(_) => Err("its decoder gave up".to_owned()),
    }
}

/// What was damaged, and how much more may be.
pub(crate) struct Damages {
    most: u64,
    told: Mutex<BTreeSet<String>>,
}

impl Damages {
    pub fn new(most: u64) -> Self {
        Self { most, told: Mutex::default() }
    }

    /// The error again, if it is of another kind or one too many.
    pub fn pass_over(&self, error: DataError) -> Result<(), DataError> {
        if !matches!(error, DataError::Damaged { .. }) {
            return Err(error);
        }
        let mut told = self.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let text = error.to_string();
        if told.contains(&text) || (told.len() as u64) < self.most {
            told.insert(text);
            return Ok(());
        }
        Err(error)
    }

    /// `None` for damage that is passed over.
    pub fn tolerate<T>(&self, outcome: Result<T, DataError>) -> Result<Option<T>, DataError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.pass_over(error).map(|()| None),
        }
    }
}
