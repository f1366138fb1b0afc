//! CSV taken apart: where the fields of records are.
//!
//! A record ends with `\n`, `\r\n` or `\r`; an empty line is none. Within quotes two quotes are one, and everything else is
//! as it stands. A quote that does not begin a field is a character as others are.

/// Where a field is: in the text, or in what was rewritten because it had quotes or escapes in it.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: u32,
    end: u32,
}

/// Marks the beginning of a span in `rewritten`.
const REWRITTEN: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    pub delimiter: u8,
    pub quote: Option<u8>,
    pub escape: Option<u8>,
}

/// What is wrong with a record, and where it begins.
#[derive(Debug)]
pub(super) struct BadRecord {
    pub offset: usize,
    pub why: String,
}

pub(super) struct Tokens<'a> {
    text: &'a [u8],
    dialect: Dialect,
    /// Bytes that end a field without quotes, or need a closer look.
    special: [bool; 256],
    at: usize,
    columns: Option<usize>,
    spans: Vec<Span>,
    /// Where each record begins.
    begins: Vec<u32>,
    rewritten: Vec<u8>,
}

impl<'a> Tokens<'a> {
    /// With `columns`, every record must have that many fields.
    pub fn new(text: &'a [u8], dialect: Dialect, columns: Option<usize>) -> Result<Self, BadRecord> {
        if text.len() >= REWRITTEN as usize {
            let why = "it has 2 GiB without an end of a record".to_owned();
            return Err(BadRecord { offset: 0, why });
        }
        let mut special = [false; 256];
        for byte in [Some(dialect.delimiter), Some(b'\n'), Some(b'\r'), dialect.escape].into_iter().flatten() {
            special[byte as usize] = true;
        }
        let (spans, begins, rewritten) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { text, dialect, special, at: 0, columns, spans, begins, rewritten })
    }

    /// Where the next record begins.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn rows(&self) -> usize {
        self.begins.len()
    }

    /// The offset of a record of those that `fill` found.
    pub fn begin(&self, row: usize) -> usize {
        self.begins[row] as usize
    }

    /// The values of a column. Every record must have the same number of fields.
    pub fn column(&self, index: usize) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        let columns = self.spans.len() / self.begins.len().max(1);
        (0..self.begins.len()).map(move |row| self.value(self.spans[row * columns + index]))
    }

    /// The fields of the only record.
    pub fn record(&self) -> Vec<&[u8]> {
        self.spans.iter().map(|span| self.value(*span)).collect()
    }

    fn value(&self, span: Span) -> &[u8] {
        match span.begin & REWRITTEN {
            0 => &self.text[span.begin as usize..span.end as usize],
            _ => &self.rewritten[(span.begin & !REWRITTEN) as usize..span.end as usize],
        }
    }

    /// Finds the next records, at most this many; false where there are none.
    pub fn fill(&mut self, most: usize) -> Result<bool, BadRecord> {
        self.spans.clear();
        self.begins.clear();
        self.rewritten.clear();
        while self.begins.len() < most && self.at < self.text.len() {
            if matches!(self.text[self.at], b'\n' | b'\r') {
                self.at += 1;
                continue;
            }
            let (offset, before) = (self.at, self.spans.len());
            self.begins.push(offset as u32);
            self.record_fields()?;
            let fields = self.spans.len() - before;
            match self.columns {
                None => self.columns = Some(fields),
                Some(columns) if columns != fields => {
                    let why = format!("it has {fields} fields instead of {columns}");
                    return Err(BadRecord { offset, why });
                }
                Some(_) => {}
            }
        }
        Ok(!self.begins.is_empty())
    }

    fn record_fields(&mut self) -> Result<(), BadRecord> {
        loop {
            let span = match self.text.get(self.at) {
                Some(byte) if Some(*byte) == self.dialect.quote => self.quoted()?,
                _ => self.plain(),
            };
            self.spans.push(span);
            match self.text.get(self.at) {
                None => return Ok(()),
                Some(b'\n') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\r') => {
                    self.at += 1 + usize::from(self.text.get(self.at + 1) == Some(&b'\n'));
                    return Ok(());
                }
                Some(_) => self.at += 1,
            }
        }
    }

    fn to_special(&self, from: usize) -> usize {
        let length = self.text[from..].iter().position(|byte| self.special[*byte as usize]);
        length.map_or(self.text.len(), |length| from + length)
    }

    fn plain(&mut self) -> Span {
        let begin = self.at;
        let end = self.to_special(begin);
        self.at = end;
        if self.text.get(end).is_some() && self.text.get(end).copied() == self.dialect.escape {
            let from = self.rewritten.len();
            self.rewritten.extend_from_slice(&self.text[begin..end]);
            self.rest_of_field();
            return self.span_from(from);
        }
        Span { begin: begin as u32, end: end as u32 }
    }

    /// Rewrites the rest of a field without quotes.
    fn rest_of_field(&mut self) {
        loop {
            let end = self.to_special(self.at);
            self.rewritten.extend_from_slice(&self.text[self.at..end]);
            self.at = end;
            match self.text.get(end) {
                Some(byte) if Some(*byte) == self.dialect.escape => {
                    self.rewritten.extend(self.text.get(end + 1));
                    self.at = self.text.len().min(end + 2);
                }
                _ => return,
            }
        }
    }

    fn span_from(&self, from: usize) -> Span {
        Span { begin: from as u32 | REWRITTEN, end: self.rewritten.len() as u32 }
    }

    fn quoted(&mut self) -> Result<Span, BadRecord> {
        let quote = self.dialect.quote.expect("the caller has seen one");
        let opening = self.at;
        let begin = opening + 1;
        let find = |from: usize| match self.dialect.escape {
            Some(escape) => memchr::memchr2(quote, escape, &self.text[from..]).map(|at| from + at),
            None => memchr::memchr(quote, &self.text[from..]).map(|at| from + at),
        };
        let unclosed = || BadRecord { offset: opening, why: "a quote is never closed".to_owned() };
        let end = find(begin).ok_or_else(unclosed)?;
        let after = self.text.get(end + 1);
        let is_end = |after: Option<&u8>| after.is_none_or(|byte| self.special[*byte as usize]);
        if self.text[end] == quote && is_end(after) && after.copied() != self.dialect.escape {
            self.at = end + 1;
            return Ok(Span { begin: begin as u32, end: end as u32 });
        }
        let from = self.rewritten.len();
        let mut copied = begin;
        let mut next = end;
        loop {
            let after = self.text.get(next + 1).copied();
            self.rewritten.extend_from_slice(&self.text[copied..next]);
            let is_pair = self.text[next] == quote && after == Some(quote);
            if is_pair || self.text[next] != quote {
                // Two quotes, or an escape and what it stands before.
                self.rewritten.extend(after);
                copied = (next + 2).min(self.text.len());
                next = find(copied).ok_or_else(unclosed)?;
                continue;
            }
            self.at = next + 1;
            self.rest_of_field();
            return Ok(self.span_from(from));
        }
    }
}
