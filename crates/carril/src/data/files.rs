//! Files, and how they are read. What is said here is opened by the readers of `carril_data`, when rows are asked for.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use carril_data::read::filter::Condition;
use serde_json::{Map, Value, json};

use super::compare::Is;

/// Where files are: one path or several. Each is that of a file, of a directory, or a glob (`data/*.parquet`, `logs/**/*.csv`), on this
/// machine or elsewhere (`s3://…`, `gs://…`, `az://…`).
///
/// ```
/// use carril::data::Dataset;
///
/// let one = Dataset::read_csv("data.csv");
/// let all = Dataset::read_csv(std::path::Path::new("data"));
/// let some = Dataset::read_csv(["first.csv", "s3://bucket/more/*.csv"]);
/// ```
pub trait Paths {
    /// Each of them, as a text.
    ///
    /// ```
    /// use carril::data::Paths;
    ///
    /// assert_eq!(["s3://a/b", "s3://c/d"].into_paths(), ["s3://a/b", "s3://c/d"]);
    /// ```
    fn into_paths(self) -> Vec<String>;
}

/// A worker may have another working directory.
pub(super) fn absolute(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.contains("://") {
        return text.into_owned();
    }
    let ending = if text.ends_with('/') { "/" } else { "" };
    let found = std::path::absolute(path).map(|path| path.to_string_lossy().trim_end_matches('/').to_owned());
    found.map_or_else(|_| text.clone().into_owned(), |found| found + ending)
}

macro_rules! one_path {
    ($($kind:ty),*) => { $(impl Paths for $kind {
        fn into_paths(self) -> Vec<String> {
            vec![absolute(self.as_ref())]
        }
    })* };
}

one_path!(&str, String, &String, &Path, PathBuf, &PathBuf);

impl<T: AsRef<Path>> Paths for Vec<T> {
    fn into_paths(self) -> Vec<String> {
        self.as_slice().into_paths()
    }
}

impl<T: AsRef<Path>, const N: usize> Paths for [T; N] {
    fn into_paths(self) -> Vec<String> {
        self.as_slice().into_paths()
    }
}

impl<T: AsRef<Path>> Paths for &[T] {
    fn into_paths(self) -> Vec<String> {
        self.iter().map(|path| absolute(path.as_ref())).collect()
    }
}

/// A format of files: the types of this module that are named after one.
///
/// ```
/// fn one<F: carril::data::Format>(files: carril::data::Files<F>) -> carril::data::Dataset {
///     carril::data::Dataset::read(files.with_paths())
/// }
/// ```
pub trait Format {
    #[doc(hidden)]
    const NAME: &'static str;
}

macro_rules! formats {
    ($($(#[$doc:meta])* $kind:ident $name:literal $begin:ident $path:literal;)*) => { $(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use carril::data::{Dataset, Files, ", stringify!($kind), "};")]
        ///
        #[doc = concat!("let files: Files<", stringify!($kind), "> = Files::", stringify!($begin), "(\"", $path, "\");")]
        /// let dataset = Dataset::read(files);
        /// ```
        #[derive(Clone, Copy, Debug)]
        pub enum $kind {}

        impl Format for $kind {
            const NAME: &'static str = $name;
        }

        impl Files<$kind> {
            $(#[$doc])*
            ///
            /// ```
            #[doc = concat!("let files = carril::data::Files::", stringify!($begin), "(\"", $path, "\");")]
            /// ```
            pub fn $begin(paths: impl Paths) -> Self {
                Self { paths: paths.into_paths(), files: Map::new(), options: Map::new(), format: PhantomData }
            }
        }
    )* };
}

formats! {
    /// Parquet. Rows are counted without reading them, and only the columns that are wanted are read.
    Parquet "parquet" parquet "data/*.parquet";
    /// Comma-separated values, compressed or not. Types are found by looking.
    Csv "csv" csv "data.csv.gz";
    /// JSON: a value in each line, or arrays, compressed or not.
    Json "json" json "data.jsonl";
    /// Text: a row with a column `text` for each line.
    Text "text" text "book.txt";
    /// Whole files: a row with a column `bytes` for each.
    Binary "binary" binary "blobs/";
    /// Images: a row with a column `image`, a tensor of bytes, for each.
    Images "images" images "photos/";
    /// Arrays of numpy (`.npy`): a row with a column `data` for each entry of the first axis.
    Numpy "numpy" numpy "weights.npy";
    /// Arrow's own formats: files (Feather) and streams.
    Ipc "ipc" ipc "data.arrow";
    /// TensorFlow's records of examples: a column for each feature.
    TfRecord "tfrecord" tfrecord "data.tfrecord";
    /// WebDataset: archives of samples, a column for each ending.
    WebDataset "webdataset" webdataset "shard-*.tar";
}

/// Files of one format, and how they are read.
///
/// ```
/// use carril::data::{Dataset, Files};
///
/// let dataset = Dataset::read(Files::csv("data.csv").delimiter(';').columns(["x", "y"]));
/// ```
#[derive(Clone, Debug)]
pub struct Files<F> {
    paths: Vec<String>,
    files: Map<String, Value>,
    options: Map<String, Value>,
    format: PhantomData<fn() -> F>,
}

/// What the pixels of images become.
///
/// ```
/// use carril::data::{Files, Pixels};
///
/// let files = Files::images("digits/").size(28, 28).pixels(Pixels::Grey);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pixels {
    /// One byte for each: how bright it is.
    Grey,
    /// Three bytes for each.
    Rgb,
    /// Four bytes for each, the last for how much it covers.
    Rgba,
}

fn names<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Value {
    names.into_iter().map(|name| Value::String(name.into())).collect()
}

impl<F: Format> Files<F> {
    fn file_option(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.files.insert(name.to_owned(), value.into());
        self
    }

    fn option(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.options.insert(name.to_owned(), value.into());
        self
    }

    /// Only files whose names end so. Otherwise those that are usual for the format are looked for in directories.
    ///
    /// ```
    /// let files = carril::data::Files::csv("tables/").extensions(["dat"]);
    /// ```
    pub fn extensions<T: Into<String>>(self, extensions: impl IntoIterator<Item = T>) -> Self {
        self.file_option("file_extensions", names(extensions))
    }

    /// With a column `path`: the file that a row is from.
    ///
    /// ```
    /// let files = carril::data::Files::images("photos/").with_paths();
    /// ```
    pub fn with_paths(self) -> Self {
        self.file_option("include_paths", true)
    }

    /// `/key=value/` in a path is no column. Otherwise it is one.
    ///
    /// ```
    /// let files = carril::data::Files::parquet("by/year=2026/").without_partitions();
    /// ```
    pub fn without_partitions(self) -> Self {
        self.file_option("partitioning", false)
    }

    /// Paths that lead nowhere are passed over.
    ///
    /// ```
    /// let files = carril::data::Files::parquet(["there.parquet", "perhaps.parquet"]).ignore_missing();
    /// ```
    pub fn ignore_missing(self) -> Self {
        self.file_option("ignore_missing_paths", true)
    }

    /// So many damaged parts are passed over: files, row groups, ranges of lines. They are reported at the end of a pass.
    ///
    /// ```
    /// let files = carril::data::Files::images("photos/").max_errors(10);
    /// ```
    pub fn max_errors(self, most: u64) -> Self {
        self.file_option("max_errors", most)
    }

    pub(super) fn spec(self) -> Value {
        json!({"format": F::NAME, "paths": self.paths, "files": self.files, "options": self.options})
    }
}

macro_rules! with_columns {
    ($($kind:ident $begin:ident $path:literal),*) => { $(impl Files<$kind> {
        /// Only these columns, in this order.
        ///
        /// ```
        #[doc = concat!("let files = carril::data::Files::", stringify!($begin), "(\"", $path, "\").columns([\"x\", \"y\"]);")]
        /// ```
        pub fn columns<T: Into<String>>(self, columns: impl IntoIterator<Item = T>) -> Self {
            self.option("columns", names(columns))
        }
    })* };
}

with_columns!(Parquet parquet "data.parquet", Csv csv "data.csv", Json json "data.jsonl", Ipc ipc "data.arrow");

macro_rules! with_types {
    ($($kind:ident $begin:ident $path:literal),*) => { $(impl Files<$kind> {
        /// A column's type, named as in Arrow: `int64`, `float32`, `string`, `timestamp[ms]`, `list<int64>`. It is not looked for then.
        ///
        /// ```
        #[doc = concat!("let files = carril::data::Files::", stringify!($begin), "(\"", $path, "\").column_type(\"x\", \"float32\");")]
        /// ```
        pub fn column_type(mut self, column: impl Into<String>, kind: impl Into<String>) -> Self {
            let types = self.options.entry("column_types").or_insert_with(|| json!({}));
            types[column.into()] = Value::String(kind.into());
            self
        }
    })* };
}

with_types!(Csv csv "data.csv", Json json "data.jsonl");

impl Files<Parquet> {
    /// Only rows whose value in a column is so. Row groups that have none, by what the file says of them, are not read. How many rows remain
    /// is not known before, so that ranks share whole row groups; [`Dataset::filter`](super::Dataset::filter) deals rows.
    ///
    /// ```
    /// use carril::data::{Files, Is};
    ///
    /// let files = Files::parquet("events/").filter("day", Is::GreaterOrEqual, "2026-11-01").filter("size", Is::Less, 100);
    /// ```
    pub fn filter(mut self, column: impl Into<String>, is: Is, value: impl Into<Value>) -> Self {
        let Condition(column, operator, value) = is.condition(column, value);
        if let Some(all) = self.options.entry("filter").or_insert_with(|| json!([])).as_array_mut() {
            all.push(json!([column, operator, value]));
        }
        self
    }
}

impl Files<Csv> {
    /// What stands between values; a comma otherwise.
    ///
    /// ```
    /// let files = carril::data::Files::csv("data.tsv").delimiter('\t');
    /// ```
    pub fn delimiter(self, delimiter: char) -> Self {
        self.option("delimiter", delimiter.to_string())
    }

    /// The files have no line of names: these are the columns'.
    ///
    /// ```
    /// let files = carril::data::Files::csv("data.csv").without_header(["x", "y"]);
    /// ```
    pub fn without_header<T: Into<String>>(self, columns: impl IntoIterator<Item = T>) -> Self {
        self.option("header", false).option("column_names", names(columns))
    }

    /// Lines before the header that are passed over.
    ///
    /// ```
    /// let files = carril::data::Files::csv("data.csv").skip_rows(2);
    /// ```
    pub fn skip_rows(self, lines: usize) -> Self {
        self.option("skip_rows", lines)
    }

    /// Texts that stand for a missing value.
    ///
    /// ```
    /// let files = carril::data::Files::csv("data.csv").null_values(["", "n/a"]);
    /// ```
    pub fn null_values<T: Into<String>>(self, texts: impl IntoIterator<Item = T>) -> Self {
        self.option("null_values", names(texts))
    }
}

impl Files<Text> {
    /// Lines without a character are rows too.
    ///
    /// ```
    /// let files = carril::data::Files::text("poem.txt").with_empty_lines();
    /// ```
    pub fn with_empty_lines(self) -> Self {
        self.option("drop_empty_lines", false)
    }
}

impl Files<Images> {
    /// Every image is brought to this size, and the column has one shape.
    ///
    /// ```
    /// let files = carril::data::Files::images("photos/").size(224, 224);
    /// ```
    pub fn size(self, height: usize, width: usize) -> Self {
        self.option("size", json!([height, width]))
    }

    /// What the pixels become; otherwise what those of the first images are.
    ///
    /// ```
    /// let files = carril::data::Files::images("photos/").pixels(carril::data::Pixels::Rgb);
    /// ```
    pub fn pixels(self, pixels: Pixels) -> Self {
        let mode = match pixels {
            Pixels::Grey => "L",
            Pixels::Rgb => "RGB",
            Pixels::Rgba => "RGBA",
        };
        self.option("mode", mode)
    }
}

impl Files<TfRecord> {
    /// Features that are columns of lists, however many values they have.
    ///
    /// ```
    /// let files = carril::data::Files::tfrecord("data.tfrecord").lists(["tokens"]);
    /// ```
    pub fn lists<T: Into<String>>(self, features: impl IntoIterator<Item = T>) -> Self {
        self.option("lists", names(features))
    }
}

impl Files<WebDataset> {
    /// All is bytes. Otherwise images become tensors, classes numbers, and texts texts.
    ///
    /// ```
    /// let files = carril::data::Files::webdataset("shard-*.tar").without_decoding();
    /// ```
    pub fn without_decoding(self) -> Self {
        self.option("decode", false)
    }

    /// Only the members with these endings.
    ///
    /// ```
    /// let files = carril::data::Files::webdataset("shard-*.tar").endings(["jpg", "cls"]);
    /// ```
    pub fn endings<T: Into<String>>(self, endings: impl IntoIterator<Item = T>) -> Self {
        self.option("suffixes", names(endings))
    }
}
