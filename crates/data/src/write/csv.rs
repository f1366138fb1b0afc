//! CSV: fields between delimiters, in quotes where they must be.
//!
//! A null is an empty field, and an empty text one in quotes, as is a null that is alone in its line. Numbers are as short as they can be to be read back the same,
//! times are as ISO 8601 writes them.

use std::fmt::Write as _;
use std::io::Write;

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};

use super::encoder::{Quoting, Stopped};

/// Lines are handed on when there are so many bytes of them.
const ENOUGH: usize = 256 << 10;

pub(super) struct CsvWriter<W> {
    to: W,
    delimiter: u8,
    quoting: Quoting,
    has_header: bool,
}

impl<W: Write> CsvWriter<W> {
    pub fn new(to: W, delimiter: u8, quoting: Quoting, has_header: bool) -> Self {
        Self { to, delimiter, quoting, has_header }
    }

    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), Stopped> {
        let mut lines = Vec::with_capacity(ENOUGH);
        if std::mem::take(&mut self.has_header) {
            for (number, field) in rows.schema_ref().fields().iter().enumerate() {
                self.begin_field(&mut lines, number);
                self.field(&mut lines, field.name())?;
            }
            lines.push(b'\n');
        }
        let options = FormatOptions::default();
        let formatters = rows.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let formatters = formatters.collect::<Result<Vec<_>, _>>()?;
        let mut text = String::new();
        for row in 0..rows.num_rows() {
            for (number, formatter) in formatters.iter().enumerate() {
                self.begin_field(&mut lines, number);
                if rows.column(number).is_null(row) {
                    if formatters.len() == 1 {
                        // A line without anything is no row to a reader.
                        self.field(&mut lines, "")?;
                    }
                    continue;
                }
                text.clear();
                write!(text, "{}", formatter.value(row)).map_err(|_| self.unwritable(rows, number, row))?;
                self.field(&mut lines, &text)?;
            }
            lines.push(b'\n');
            if lines.len() >= ENOUGH {
                self.to.write_all(&lines)?;
                lines.clear();
            }
        }
        Ok(self.to.write_all(&lines)?)
    }

    fn unwritable(&self, rows: &RecordBatch, column: usize, row: usize) -> Stopped {
        let name = rows.schema_ref().field(column).name().clone();
        Stopped::Rows(format!("a value of the column `{name}` (row {row} of its block) has no form as text"))
    }

    fn begin_field(&self, lines: &mut Vec<u8>, number: usize) {
        if number > 0 {
            lines.push(self.delimiter);
        }
    }

    fn field(&self, lines: &mut Vec<u8>, text: &str) -> Result<(), Stopped> {
        let special = |byte: u8| byte == self.delimiter || matches!(byte, b'"' | b'\n' | b'\r');
        let needs_quotes = text.is_empty() || text.bytes().any(special);
        match (self.quoting, needs_quotes) {
            (Quoting::Needed, false) | (Quoting::None, false) => lines.extend_from_slice(text.as_bytes()),
            (Quoting::None, true) if text.is_empty() => {}
            (Quoting::None, true) => {
                return Err(Stopped::Rows(format!(
                    "`{}` cannot be written without quotes, as `quoting_style` asks",
                    text.escape_debug()
                )));
            }
            _ => {
                lines.push(b'"');
                for byte in text.bytes() {
                    if byte == b'"' {
                        lines.push(b'"');
                    }
                    lines.push(byte);
                }
                lines.push(b'"');
            }
        }
        Ok(())
    }

    pub fn into_inner(self) -> W {
        self.to
    }
}
