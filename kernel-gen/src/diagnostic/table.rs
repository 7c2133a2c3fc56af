//! Reads TOML tables key by key and reports what is wrong with them.

use super::report::Report;
use super::spelling::suggest;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and where it stands in the text.
#[derive(Clone, PartialEq, Debug)]
pub struct Found<T> {
    /// The value.
    pub value: T,
    /// The bytes of the text that hold it.
    pub span: Range<usize>,
}

/// Parses a document; syntax errors go to the report, and what could be parsed comes back all the same.
pub fn parse<'i>(text: &'i str, report: &mut Report) -> Spanned<DeTable<'i>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        report.error(&span, format!("not valid TOML: {}", error.message()), "correct the syntax at this place");
    }
    document
}

/// A size, or the range of those that it may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// The least.
    pub least: i64,
    /// The most.
    pub most: i64,
}

impl Size {
    /// `1..64`.
    fn range(text: &str) -> Option<Size> {
        let (least, most) = text.split_once("..")?;
        let number = |text: &str| text.trim().parse::<i64>().ok();
        Some(Size { least: number(least)?, most: number(most)? })
    }

    /// One number.
    pub fn one(n: i64) -> Size {
        Size { least: n, most: n }
    }

    /// Whether it is more than one.
    pub fn is_range(self) -> bool {
        self.least != self.most
    }
}

/// An array of sizes, of which the first may be a range if `ranges` says so.
fn sizes(value: &DeValue<'_>, ranges: bool) -> Option<Vec<Size>> {
    let size = |(i, e): (usize, &Spanned<DeValue<'_>>)| match e.get_ref().as_str() {
        Some(text) if ranges && i == 0 => Size::range(text),
        _ => integer(e.get_ref()).map(Size::one),
    };
    value.as_array()?.iter().enumerate().map(size).collect()
}

/// Numbers of any dimensions: a number, or arrays within each other.
#[derive(Clone, PartialEq, Debug)]
pub struct Array {
    /// The extents; a number has none.
    pub shape: Vec<i64>,
    /// The elements, row by row.
    pub elements: Vec<Element>,
}

/// An element of an [`Array`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Element {
    /// An integer; `true` and `false` are 1 and 0.
    Integer(i64),
    /// A number.
    Float(f64),
}

impl Array {
    /// The array that a text is, in TOML.
    pub fn parse(text: &str) -> Option<Array> {
        let text = format!("value = {text}");
        let mut report = Report::new("", &text);
        let document = parse(&text, &mut report);
        let all = Table::root(&document, "").named_arrays(&mut report, "");
        all.into_values().next().map(|found| found.value).filter(|_| report.is_clean())
    }

    /// The array that a value is.
    fn of(value: &DeValue<'_>) -> Option<Array> {
        let one = |element| Array { shape: vec![], elements: vec![element] };
        Some(match value {
            DeValue::Integer(_) => one(Element::Integer(integer(value)?)),
            DeValue::Boolean(is_true) => one(Element::Integer((*is_true).into())),
            DeValue::Float(float) => one(Element::Float(float.as_str().parse().ok()?)),
            DeValue::Array(rows) => {
                let rows = rows.iter().map(|row| Array::of(row.get_ref())).collect::<Option<Vec<_>>>()?;
                let first = &rows.first()?.shape;
                if rows.iter().any(|row| row.shape != *first) {
                    return None;
                }
                Array {
                    shape: [&[rows.len() as i64], &first[..]].concat(),
                    elements: rows.iter().flat_map(|row| row.elements.iter().copied()).collect(),
                }
            }
            _ => return None,
        })
    }
}

/// A table being read. It remembers the keys that were asked for: [`Table::finish`] reports all others.
pub struct Table<'t, 'i> {
    table: &'t DeTable<'i>,
    span: Range<usize>,
    what: String,
    asked: Vec<&'static str>,
}

impl<'t, 'i> Table<'t, 'i> {
    /// A whole document; `what` is its name in messages.
    pub fn root(document: &'t Spanned<DeTable<'i>>, what: &str) -> Table<'t, 'i> {
        Table { table: document.get_ref(), span: document.span(), what: what.into(), asked: vec![] }
    }

    /// Where the table starts: its header.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Changes what the table is called in messages.
    pub fn rename(&mut self, what: impl Into<String>) {
        self.what = what.into();
    }

    /// Where the value of a key stands; the table's own place if it has no such key.
    pub fn span_of(&self, key: &str) -> Range<usize> {
        self.table.iter().find(|(k, _)| k.get_ref() == key).map_or(self.span.clone(), |(_, v)| v.span())
    }

    /// Whether the key is there, whatever its value.
    pub fn has(&self, key: &str) -> bool {
        self.table.iter().any(|(k, _)| k.get_ref() == key)
    }

    /// The value of a key as it was parsed.
    fn get(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'i>>> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        self.table.iter().find(|(k, _)| k.get_ref() == key).map(|(_, v)| v)
    }

    /// The value of a key if `read` takes it; `example` says what would have been right.
    fn typed<T>(
        &mut self,
        report: &mut Report,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&'t DeValue<'i>) -> Option<T>,
    ) -> Option<Found<T>> {
        let value = self.get(key)?;
        let span = value.span();
        match read(value.get_ref()) {
            Some(value) => Some(Found { value, span }),
            None => {
                let kind = describe(value.get_ref());
                report.error(&span, format!("`{key}` cannot be {kind}"), format!("write {example}"));
                None
            }
        }
    }

    /// A string.
    pub fn string(&mut self, report: &mut Report, key: &'static str) -> Option<Found<&'t str>> {
        self.typed(report, key, &format!("a string: {key} = \"...\""), |v| v.as_str())
    }

    /// A truth value.
    pub fn boolean(&mut self, report: &mut Report, key: &'static str) -> Option<Found<bool>> {
        self.typed(report, key, &format!("{key} = true or {key} = false"), |v| v.as_bool())
    }

    /// An integer that fits 64 bits.
    pub fn integer(&mut self, report: &mut Report, key: &'static str) -> Option<Found<i64>> {
        self.typed(report, key, &format!("an integer: {key} = 1"), integer)
    }

    /// A number, with or without a fraction.
    pub fn number(&mut self, report: &mut Report, key: &'static str) -> Option<Found<f64>> {
        self.typed(report, key, &format!("a number: {key} = 1.5"), |v| match v {
            DeValue::Float(f) => f.as_str().parse().ok().filter(|f: &f64| f.is_finite()),
            other => integer(other).map(|i| i as f64),
        })
    }

    /// A number as [`Table::number`] has it, or an infinity.
    pub fn number_or_infinity(&mut self, report: &mut Report, key: &'static str) -> Option<Found<f64>> {
        self.typed(report, key, &format!("a number: {key} = 1.5"), |v| match v {
            DeValue::Float(f) => f.as_str().parse().ok().filter(|f: &f64| !f.is_nan()),
            other => integer(other).map(|i| i as f64),
        })
    }

    /// An array of integers of one of the given lengths (any length if there are none).
    pub fn integers(&mut self, report: &mut Report, key: &'static str, lengths: &[usize]) -> Option<Found<Vec<i64>>> {
        let found = self.sizes(report, key, lengths, false)?;
        Some(Found { value: found.value.into_iter().map(|size| size.most).collect(), span: found.span })
    }

    /// The same, where the first may be a range if `ranges` are taken: `"1..64"`, from 1 to 64 with both.
    pub fn sizes(
        &mut self,
        report: &mut Report,
        key: &'static str,
        lengths: &[usize],
        ranges: bool,
    ) -> Option<Found<Vec<Size>>> {
        let example = match lengths.first().copied().unwrap_or(3) {
            1 => format!("an array of integers: {key} = [1]"),
            n => format!("an array of integers: {key} = [{}]", vec!["1"; n].join(", ")),
        };
        let found = self.typed(report, key, &example, |v| sizes(v, ranges))?;
        if lengths.is_empty() || lengths.contains(&found.value.len()) {
            return Some(found);
        }
        let allowed: Vec<String> = lengths.iter().map(usize::to_string).collect();
        report.error(
            &found.span,
            format!("`{key}` has {} number{}", found.value.len(), if found.value.len() == 1 { "" } else { "s" }),
            format!("give it {}", allowed.join(" or ")),
        );
        None
    }

    /// A key's value if it is a string. If it is, the key counts as asked for.
    pub fn word(&mut self, key: &'static str) -> Option<&'t str> {
        self.table.get(key)?.get_ref().as_str()?;
        self.get(key)?.get_ref().as_str()
    }

    /// An array of integers, or one integer for as many as the first of `lengths`.
    pub fn each(&mut self, report: &mut Report, key: &'static str, lengths: &[usize]) -> Option<Found<Vec<Size>>> {
        let is_one = self.table.get(key).is_some_and(|value| integer(value.get_ref()).is_some());
        if !is_one {
            return self.sizes(report, key, lengths, false);
        }
        let count = lengths.first().copied().unwrap_or(1);
        let found = self.integer(report, key)?;
        Some(Found { value: vec![Size { least: found.value, most: found.value }; count], span: found.span })
    }

    /// An array of strings.
    pub fn strings(&mut self, report: &mut Report, key: &'static str) -> Option<Found<Vec<Found<&'t str>>>> {
        self.typed(report, key, &format!("an array of strings: {key} = [\"...\"]"), |v| {
            v.as_array()?
                .iter()
                .map(|e| e.get_ref().as_str().map(|value| Found { value, span: e.span() }))
                .collect::<Option<Vec<_>>>()
        })
    }

    /// A string that is one of a list of names.
    pub fn choice<T: Clone>(
        &mut self,
        report: &mut Report,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Option<Found<T>> {
        let found = self.string(report, key)?;
        choose(report, key, &found, choices, suggest).map(|value| Found { value, span: found.span })
    }

    /// An array of strings, each one of a list of names. Wrong ones are reported and left out.
    pub fn choices<T: Clone>(
        &mut self,
        report: &mut Report,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Option<Found<Vec<Found<T>>>> {
        let found = self.strings(report, key)?;
        let value = found
            .value
            .iter()
            .filter_map(|f| choose(report, key, f, choices, suggest).map(|value| Found { value, span: f.span.clone() }))
            .collect();
        Some(Found { value, span: found.span })
    }

    /// A table inside.
    pub fn table(&mut self, report: &mut Report, key: &'static str) -> Option<Table<'t, 'i>> {
        let found = self.typed(report, key, &format!("a table: [{key}]"), |v| v.as_table())?;
        Some(Table { table: found.value, span: found.span, what: format!("[{key}]"), asked: vec![] })
    }

    /// The tables of an array: `[[key]]`. `header` is how the user writes it.
    pub fn tables(&mut self, report: &mut Report, key: &'static str, header: &str) -> Vec<Table<'t, 'i>> {
        let found = self.typed(report, key, &format!("an array of tables, each under {header}"), |v| {
            v.as_array()?
                .iter()
                .map(|e| {
                    let (table, span) = (e.get_ref().as_table()?, e.span());
                    Some(Table { table, span, what: header.to_string(), asked: vec![] })
                })
                .collect::<Option<Vec<_>>>()
        });
        found.map(|f| f.value).unwrap_or_default()
    }

    /// The tables inside, each under a name that is the user's to choose. `key` is what the user writes before the name.
    pub fn named_tables(&self, report: &mut Report, key: &str) -> Vec<(Found<&'t str>, Table<'t, 'i>)> {
        let mut all = vec![];
        for (name, span, value) in self.entries() {
            match value.get_ref().as_table() {
                Some(table) => {
                    let what = format!("[{key}.{name}]");
                    all.push((Found { value: name, span: span.clone() }, Table { table, span, what, asked: vec![] }));
                }
                None => {
                    let kind = describe(value.get_ref());
                    report.error(&span, format!("`{name}` cannot be {kind}"), format!("write a table: [{key}.{name}]"));
                }
            }
        }
        all
    }

    /// The shapes inside, each name with one or with a list of them; the first number of a shape may be a range. The names are the
    /// user's to choose; `key` is what the user writes before them.
    pub fn named_shapes(&self, report: &mut Report, key: &str) -> BTreeMap<String, Found<Vec<Vec<Size>>>> {
        let read = |value: &DeValue<'_>| {
            let list = value.as_array()?;
            match list.iter().any(|e| e.get_ref().as_array().is_some()) {
                true => list.iter().map(|e| sizes(e.get_ref(), true)).collect::<Option<Vec<_>>>(),
                false => sizes(value, true).map(|shape| vec![shape]),
            }
        };
        self.named(report, read, |name| {
            format!(
                "write a shape, {key} = {{ \"{name}\" = [1, 3, 224, 224] }}, whose first number may be a range, \"1..8\", or a \
                 list of shapes"
            )
        })
    }

    /// The arrays of numbers that the keys of a table stand for, which are the user's to choose; `key` is that of the table.
    pub fn named_arrays(&self, report: &mut Report, key: &str) -> BTreeMap<String, Found<Array>> {
        self.named(report, Array::of, |name| {
            format!(
                "write a number or an array of them, {key} = {{ \"{name}\" = 1 }}; rows of a matrix have one length"
            )
        })
    }

    /// What `read` makes of the value of each key, by name; `help` says for a name what it takes.
    fn named<T>(
        &self,
        report: &mut Report,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
        help: impl Fn(&str) -> String,
    ) -> BTreeMap<String, Found<T>> {
        let mut all = BTreeMap::new();
        for (name, span, value) in self.entries() {
            match read(value.get_ref()) {
                Some(value) => drop(all.insert(name.to_string(), Found { value, span })),
                None => {
                    let kind = describe(value.get_ref());
                    report.error(&span, format!("`{name}` cannot be {kind}"), help(name));
                }
            }
        }
        all
    }

    /// Reports that a key is missing unless it is there.
    pub fn require(&mut self, report: &mut Report, key: &'static str, example: &str) -> bool {
        let there = self.get(key).is_some();
        if !there {
            report.error(&self.span, format!("{} has no `{key}`", self.what), format!("add {example}"));
        }
        there
    }

    /// Every key with the place where it stands, and its value: for a table whose keys are the user's to choose.
    pub fn entries(&self) -> impl Iterator<Item = (&'t str, Range<usize>, &'t Spanned<DeValue<'i>>)> {
        self.table.iter().map(|(key, value)| {
            let name: &str = key.get_ref();
            (name, key.span(), value)
        })
    }

    /// Reports every key that nobody asked for.
    pub fn finish(&self, report: &mut Report) {
        for (key, _) in self.table.iter() {
            let name: &str = key.get_ref();
            if !self.asked.contains(&name) {
                let help = suggest(name, &self.asked);
                report.error(&key.span(), format!("{} has no key `{name}`", self.what), help);
            }
        }
    }
}

/// The value that a name stands for, or a diagnostic with what `help` makes of the name and of all that are allowed.
pub(crate) fn choose<T: Clone>(
    report: &mut Report,
    key: &str,
    found: &Found<&str>,
    choices: &[(&str, T)],
    help: impl FnOnce(&str, &[&str]) -> String,
) -> Option<T> {
    if let Some((_, value)) = choices.iter().find(|(name, _)| *name == found.value) {
        return Some(value.clone());
    }
    let names: Vec<&str> = choices.iter().map(|c| c.0).collect();
    report.error(&found.span, format!("`{key}` has no value \"{}\"", found.value), help(found.value, &names));
    None
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let i = value.as_integer()?;
    i64::from_str_radix(i.as_str(), i.radix()).ok()
}

fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(i) if integer(value).is_none() => format!("{i}, which does not fit 64 bits"),
        DeValue::Float(f) if f.as_str().parse().is_ok_and(|f: f64| !f.is_finite()) => {
            format!("{}, which is not a finite number", f.as_str())
        }
        DeValue::Array(a) if a.is_empty() => "an empty array".into(),
        DeValue::Array(a) => {
            let too_large = |e: &&DeValue<'_>| e.is_integer() && integer(e).is_none();
            if let Some(e) = a.iter().map(|e| e.get_ref()).find(too_large) {
                return format!("an array with {}", describe(e));
            }
            let first = a.iter().map(|e| e.get_ref().type_str()).next().unwrap_or_default();
            match a.iter().map(|e| e.get_ref().type_str()).find(|t| *t != first) {
                Some(other) => format!("an array with {} and {}", article(first), article(other)),
                None => format!("an array of {first}s"),
            }
        }
        other => article(other.type_str()),
    }
}

fn article(noun: &str) -> String {
    format!("{} {noun}", if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" })
}
