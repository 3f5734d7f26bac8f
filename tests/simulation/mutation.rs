//! Ways to break the system on purpose: each must be noticed by the invariant it names, or that invariant proves nothing.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The store acknowledges some writes that it forgets.
    WritesForgotten,
    /// The store commits whatever its conditions say.
    ConditionsIgnored,
    /// The store's watch leaves changes out.
    ChangesSkipped,
    /// A client's watch tells some changes twice.
    ChangesRepeated,
    /// Lists leave out an object.
    ListsShortened,
    /// Some reads answer with what was there before.
    ReadsStale,
    /// Some writes that are refused are done all the same.
    RefusedButDone,
    /// Two objects with one uid.
    UidTwice,
    /// An object goes whose owner is there.
    ChildCollected,
    /// An object goes that a finalizer holds.
    FinalizerIgnored,
    /// A machine has two instances.
    TwoInstances,
    /// A namespace is filled beyond its quota.
    QuotaExceeded,
    /// Somebody writes for ever.
    HotLoop,
    /// No controllers: what they should do is left undone.
    NobodyCleansUp,
    /// The server panics at a request.
    ServerPanics,
}

impl Mutation {
    /// Each with the invariants of which one must fail.
    pub(crate) const ALL: [(Self, &'static [&'static str]); 15] = [
        (Self::WritesForgotten, &["acknowledged"]),
        (Self::ConditionsIgnored, &["uid", "acknowledged", "namespace", "quota"]),
        (Self::ChangesSkipped, &["watch"]),
        (Self::ChangesRepeated, &["watch"]),
        (Self::ListsShortened, &["list"]),
        (Self::ReadsStale, &["read"]),
        (Self::RefusedButDone, &["refused"]),
        (Self::UidTwice, &["uid"]),
        (Self::ChildCollected, &["collector"]),
        (Self::FinalizerIgnored, &["finalizer"]),
        (Self::TwoInstances, &["instance"]),
        (Self::QuotaExceeded, &["quota"]),
        (Self::HotLoop, &["settled"]),
        (Self::NobodyCleansUp, &["orphan", "namespace"]),
        (Self::ServerPanics, &["died"]),
    ];
}
