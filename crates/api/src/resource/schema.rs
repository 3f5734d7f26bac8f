//! The schema of a version, which may still have to be read.
//!
//! A server has more than a hundred definitions, of which a day's work touches a dozen. To read a large schema and to
//! compile its rules takes milliseconds and memory, so that is done when a kind is first used.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use croft_schema::{CelRules, Schema};

/// A schema with its compiled rules.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) schema: Arc<Schema>,
    /// `None` if it has none.
    pub(crate) rules: Option<Arc<CelRules>>,
}

/// The schemas of all versions of a kind. They are read together, because most versions share theirs.
type Schemas = LazyLock<Vec<Compiled>, Box<dyn FnOnce() -> Vec<Compiled> + Send>>;

/// Stands for the [`Schema`] of one version.
#[derive(Clone)]
pub struct VersionSchema {
    all: Arc<Schemas>,
    index: usize,
}

impl VersionSchema {
    /// One for each version of a kind; `read` must give as many.
    pub(crate) fn later(versions: usize, read: impl FnOnce() -> Vec<Compiled> + Send + 'static) -> Vec<Self> {
        let all: Arc<Schemas> = Arc::new(LazyLock::new(Box::new(read)));
        (0..versions).map(|index| Self { all: Arc::clone(&all), index }).collect()
    }

    /// The compiled CEL rules of a custom resource's schema; `None` if it has none.
    pub fn rules(&self) -> Option<&CelRules> {
        self.compiled().rules.as_deref()
    }

    /// The schema, to be shared with others.
    pub fn shared(&self) -> &Arc<Schema> {
        &self.compiled().schema
    }

    fn compiled(&self) -> &Compiled {
        // `later` asks for one for each version.
        &self.all[self.index]
    }
}

impl From<Arc<Schema>> for VersionSchema {
    fn from(schema: Arc<Schema>) -> Self {
        Self { all: Arc::new(LazyLock::new(Box::new(|| vec![Compiled { schema, rules: None }]))), index: 0 }
    }
}

impl Deref for VersionSchema {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        &self.compiled().schema
    }
}

impl fmt::Debug for VersionSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionSchema").field("index", &self.index).finish_non_exhaustive()
    }
}
