//! What was reported, by name.

use std::fmt;

use carril_types::{AUTOMATIC_FIELDS, Value, write_json};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::decode::from_value;
use crate::encode::to_value;
use crate::error::{Error, Result};

/// One report: values by name, in the order in which they were reported, with the fields that every report has besides
/// (`training_iteration`, `time_total_s`, `timestamp`, …).
///
/// ```
/// use carril::Metrics;
///
/// #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
/// struct Epoch {
///     loss: f64,
///     epoch: u32,
/// }
///
/// let metrics = Metrics::of(&Epoch { loss: f64::NAN, epoch: 3 })?;
/// assert!(metrics.number("loss").unwrap().is_nan());
/// assert_eq!(metrics.get::<u32>("epoch")?, Some(3));
/// assert_eq!(metrics.to_string(), r#"{"loss": NaN, "epoch": 3}"#);
/// # Ok::<(), carril::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(pub(crate) carril_types::Metrics);

impl Metrics {
    /// The fields of a struct, or the entries of a map.
    ///
    /// ```
    /// let metrics = carril::Metrics::of(&serde_json::json!({"loss": 0.5}))?;
    /// assert_eq!(metrics.number("loss"), Some(0.5));
    /// assert!(carril::Metrics::of(&0.5).is_err());
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn of<T: Serialize + ?Sized>(metrics: &T) -> Result<Self> {
        let bad = |why: String| Error::new(carril_types::ErrorCode::BadMetrics, why);
        match to_value(metrics).map_err(|error| bad(format!("the metrics cannot be reported: {error}")))? {
            Value::Map(map) => Ok(Self(map)),
            _ => Err(bad("metrics are values by name".to_owned())
                .hint("report a struct that derives `Serialize`, or `serde_json::json!({\"loss\": loss})`")),
        }
    }

    /// A value as a number, where it is one; `a/b` is the value `b` inside of `a`.
    ///
    /// ```
    /// let metrics = carril::Metrics::of(&serde_json::json!({"test": {"loss": 0.5}}))?;
    /// assert_eq!(metrics.number("test/loss"), Some(0.5));
    /// assert_eq!(metrics.number("loss"), None);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.find(name)?.as_f64()
    }

    /// A value as whatever it was; `None` where there is no such name.
    ///
    /// ```
    /// let metrics = carril::Metrics::of(&serde_json::json!({"sizes": [1, 2]}))?;
    /// assert_eq!(metrics.get::<Vec<u8>>("sizes")?, Some(vec![1, 2]));
    /// assert_eq!(metrics.get::<u8>("loss")?, None);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(value) = self.0.find(name) else { return Ok(None) };
        let unfit = |error| Error::new(carril_types::ErrorCode::BadMetrics, format!("the metric `{name}`: {error}"));
        from_value(value.clone()).map(Some).map_err(unfit)
    }

    /// All of it as a type of yours, which need not name every field.
    ///
    /// ```
    /// #[derive(serde::Deserialize)]
    /// struct Epoch {
    ///     loss: f64,
    /// }
    /// let metrics = carril::Metrics::of(&serde_json::json!({"loss": 0.5, "epoch": 1}))?;
    /// assert_eq!(metrics.parse::<Epoch>()?.loss, 0.5);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        let unfit = |error| Error::new(carril_types::ErrorCode::BadMetrics, format!("the metrics: {error}"));
        from_value(Value::Map(self.0.clone())).map_err(unfit)
    }

    /// The names that the function reported, without those that every report has.
    ///
    /// ```
    /// let metrics = carril::Metrics::of(&serde_json::json!({"loss": 0.5, "training_iteration": 1}))?;
    /// assert_eq!(metrics.names().collect::<Vec<_>>(), ["loss"]);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.0.iter().map(|(name, _)| name.as_str()).filter(|name| !AUTOMATIC_FIELDS.contains(name))
    }

    /// True if there is nothing in it.
    ///
    /// ```
    /// assert!(carril::Metrics::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }
}

/// As JSON, with `NaN` and `Infinity` as Python writes them.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        write_json(&mut text, &self.0);
        f.write_str(&text)
    }
}
