//! How is a message described? The few words the tables are written in.

/// One API: its versions and the layout of both directions.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) key: i16,
    pub(super) name: &'static str,
    /// Lowest and highest version the layouts describe.
    pub(super) versions: (i16, i16),
    /// First version with compact lengths and tagged fields (KIP-482).
    pub(super) flexible: i16,
    pub(super) request: &'static [Field],
    pub(super) response: &'static [Field],
}

/// For APIs without flexible versions.
pub(super) const NEVER: i16 = i16::MAX;

/// One field: in which versions it exists, from which it may be null, and its tag if it is a tagged one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) from: i16,
    pub(super) until: i16,
    pub(super) null_from: i16,
    pub(super) tag: Option<u32>,
}

/// What a field's bytes are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A number, flag or id of this many bytes.
    Fixed(usize),
    /// A length and UTF-8.
    Text,
    /// A length and bytes.
    Blob,
    /// A count and numbers of this many bytes each.
    Numbers(usize),
    /// A count and strings.
    Texts,
    /// A count and structs.
    Structs(&'static [Field]),
    /// Fields in order and, in flexible versions, tagged fields behind them.
    Struct(&'static [Field]),
}

impl Field {
    const fn of(name: &'static str, kind: Kind) -> Field {
        Field { name, kind, from: 0, until: i16::MAX, null_from: NEVER, tag: None }
    }

    /// Exists from this version on.
    pub(super) const fn since(mut self, version: i16) -> Field {
        self.from = version;
        self
    }

    /// Exists up to this version.
    pub(super) const fn until(mut self, version: i16) -> Field {
        self.until = version;
        self
    }

    /// May be null from this version on.
    pub(super) const fn nullable(mut self, version: i16) -> Field {
        self.null_from = version;
        self
    }

    /// Is a tagged field with this number.
    pub(super) const fn tag(mut self, tag: u32) -> Field {
        self.tag = Some(tag);
        self
    }

    pub(super) const fn exists(&self, version: i16) -> bool {
        self.from <= version && version <= self.until
    }
}

/// An 8-bit number.
pub(super) const fn int8(name: &'static str) -> Field {
    Field::of(name, Kind::Fixed(1))
}

/// A 16-bit number.
pub(super) const fn int16(name: &'static str) -> Field {
    Field::of(name, Kind::Fixed(2))
}

/// A 32-bit number.
pub(super) const fn int32(name: &'static str) -> Field {
    Field::of(name, Kind::Fixed(4))
}

/// A 64-bit number.
pub(super) const fn int64(name: &'static str) -> Field {
    Field::of(name, Kind::Fixed(8))
}

/// A flag.
pub(super) const fn flag(name: &'static str) -> Field {
    int8(name)
}

/// 16 bytes.
pub(super) const fn uuid(name: &'static str) -> Field {
    Field::of(name, Kind::Fixed(16))
}

/// A string.
pub(super) const fn text(name: &'static str) -> Field {
    Field::of(name, Kind::Text)
}

/// Bytes, record batches among them.
pub(super) const fn blob(name: &'static str) -> Field {
    Field::of(name, Kind::Blob)
}

/// A list of 32-bit numbers.
pub(super) const fn int32s(name: &'static str) -> Field {
    Field::of(name, Kind::Numbers(4))
}

/// A list of strings.
pub(super) const fn texts(name: &'static str) -> Field {
    Field::of(name, Kind::Texts)
}

/// A list of structs.
pub(super) const fn structs(name: &'static str, item: &'static [Field]) -> Field {
    Field::of(name, Kind::Structs(item))
}

/// A struct in place.
pub(super) const fn object(name: &'static str, fields: &'static [Field]) -> Field {
    Field::of(name, Kind::Struct(fields))
}
